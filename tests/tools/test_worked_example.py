"""The example of docs/how-it-works.md, computed."""

import re
from pathlib import Path

import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.domain.plan import SITE_FACTOR
from rltuned.domain.priority import PrioritySystem
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, running, snapshot, sure

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-it-works.md").read_text()
HOUR = 3600.0
ASKED = {"bob": (1, 0.5, 1 / 6), "dee": (2, 4.0, 1.0), "ann": (4, 6.0, 2.0), "cid": (4, 8.0, 3.0)}
"""GPUs, limit and wait in hours."""
SYSTEM = PrioritySystem(kind="multifactor", ages=True, age_weight=100_000, max_age_s=7 * 86_400.0)


@pytest.fixture(scope="module")
def decision() -> Decision:
    waiting = [
        job(
            number, user=user, gpus=gpus, time_limit_s=limit * HOUR,
            submitted_at=NOW - waited * HOUR,
            priority=5_000 + int(SYSTEM.slope * waited * HOUR),
        )
        for number, (user, (gpus, limit, waited)) in enumerate(ASKED.items(), 1)
    ]  # fmt: skip
    busy = [running(100 + n, node_name=f"p{n}", gpus=4) for n in (1, 2)]
    nodes = [node(f"p{n}", free_gpus=0) for n in (1, 2)]
    seen = snapshot(*waiting, runs=busy, nodes=nodes, priorities=SYSTEM)
    return decide(seen, BASELINES["delay"], Knobs())


def test_the_table_is_what_the_daemon_would_decide(decision: Decision) -> None:
    written = {
        int(action.target.job_id): action.new
        for action in decision.plan.actions
        if action.field is SITE_FACTOR
    }
    users = {entry.job.user: entry for entry in decision.entries}
    rows = re.findall(r"^\| (bob|dee|ann|cid) \|(.*)\|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == list(ASKED)
    for name, row in rows:
        cells, entry = [cell.strip() for cell in row.split("|")], users[name]
        now, *later = map(int, cells[-1].split(" -> "))
        factor = written.get(int(entry.job.job_id), 0)
        assert cells[-3] == f"{entry.delay_s:,.0f} s"
        assert now == entry.current
        assert later == ([now + factor] if factor else [])
        assert cells[-2].endswith(f"= {factor:+d}" if factor else "")
        assert bool(cells[-2]) == bool(factor)


def test_the_backlog_and_the_neutral_delay(decision: Decision) -> None:
    assert decision.matrix.backlog_s.max() / HOUR == pytest.approx(4 + 2 / 60, abs=1 / 60)
    assert sure(decision.neutral).delay_s / HOUR == pytest.approx(2 + 24 / 60, abs=1 / 60)
