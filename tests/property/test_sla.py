"""Classes of any kind, odd ones too: their jobs have delay 0, others stay as they are."""

import numpy as np
from pydantic import ValidationError

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.order import SlaClass, class_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.settings.keys import Settings
from tests.builders import NOW, job, snapshot
from tests.property.tables import SYSTEM

QOS = ("normal", "high")
FUZZED = 10_000


def drawn_class(rng: np.random.Generator) -> dict[str, object]:
    """A table of `[[sla]]`, odd as often as not."""
    names = ("", "fast", "gpu", "normal", "high", "é", "a b", "x" * 300, "-1", "*", "ALL")
    values: dict[str, list[object]] = {
        "partition": [*names, 3],
        "qos": [*names, None],
        "account": [*names, ["fast"]],
        "max_wait_s": [0.0, 1e-9, 60.0, 3e7, 1e300, float("inf"), float("nan"), -1.0, "60", True],
        "weight": [1],
    }
    sane = {"max_wait_s": 60.0}
    picked = [name for name in values if rng.random() < (0.05 if name == "weight" else 0.35)]
    return sane | {name: values[name][int(rng.integers(len(values[name])))] for name in picked}


def fuzz_queue() -> Snapshot:
    jobs: list[PendingJob] = [
        job(
            n,
            submitted_at=NOW - 500.0 * n,
            priority=100_000 + 977 * (n % 5),
            qos=QOS[n % 2],
            account=("lab", "fast", "x" * 300)[n % 3],
            partitions=(("gpu",), ("gpu", "fast"), ("fast",))[n % 3],
            deadline_at=UnixTime(NOW + 4_000.0) if n % 4 == 0 else None,
        )
        for n in range(1, 9)
    ]
    return snapshot(*jobs, priorities=SYSTEM)


def test_ten_thousand_classes_raise_nothing_and_move_no_job_of_another_class() -> None:
    rng, seen, policy = np.random.default_rng(22), fuzz_queue(), BASELINES["saf"]
    context = Context(neutral=NeutralDelay(600.0, NOW, 600.0, NOW))

    def made(sla: tuple[SlaClass, ...] = ()) -> Decision:
        return decide(seen, policy, Knobs(top_k=0, sla=sla), context=context)

    plain = {a.target.job_id: a for a in made().plan.actions}
    accepted = 0
    for _ in range(FUZZED):
        tables = [drawn_class(rng) for _ in range(int(rng.integers(1, 4)))]
        try:
            found = Settings.model_validate({"sla": tables}).knobs().sla
        except ValidationError:
            continue
        accepted += 1
        decision = made(found)
        ours: set[JobId] = {j.job_id for j in seen.pending if class_of(j, found)}
        written = {a.target.job_id: a for a in decision.plan.actions}
        assert {j: a for j, a in written.items() if j not in ours} == {
            j: a for j, a in plain.items() if j not in ours
        }
        if not ours:
            assert decision.plan == made().plan
        assert all(e.delay_s == 0 for e in decision.entries if e.job.job_id in ours)
    assert accepted > FUZZED / 50
