"""Prometheus scrapes a daemon that drives a real Slurm: every panel, variable and alert is asked.

In between slurmctld stands still, and the alert about it travels through Alertmanager to a webhook.
"""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import needs
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL, waiting
from tests.e2e.watchers import Prometheus, Webhook, alertmanager, prometheus
from tests.lab import SlurmLab
from tests.programs import ran, rltuned
from tests.queries import BOARDS, Query, alerts, metrics_of, queries, variables
from tests.switchback_world import switchback_at
from tests.waits import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.prometheus]

SMALL = ("--gres=gpu:k80:1", "-n1", "--time=1")
SHORT_JOBS = 16
LATE_JOBS = 8
"""Each shorter than those before it, so that they are to be moved."""
ALERT = "RltunedSlurmNotAnswering"
RATE = "20s"
PRIVATE = "nobodys-business"


@pytest.fixture
def config(slurm: SlurmLab, tmp_path: Path) -> Iterator[Path]:
    for name in ("prometheus", "promtool", "prometheus-alertmanager"):
        needs.program(name)
    path = write_settings(
        tmp_path / "rltuned.toml",
        slurm.conf,
        policy={"placement": "milp"},
        ladder={"stage": "canary", "canary_salt": switchback_at(time.time(), on=True).salt},
        sla={"partition": "sla"},
        slurm={"timeout_s": 3},
    )
    yield path
    rltuned("restore", "--all", config=path)


def test_dashboards_and_alerts_on_a_real_daemon(
    slurm: SlurmLab, config: Path, tmp_path: Path
) -> None:
    waiting(slurm)
    started = time.monotonic()
    with (
        closing(Webhook()) as webhook,
        Daemon(tmp_path, "--config", str(config)) as daemon,
        alertmanager(tmp_path, webhook) as reply,
        prometheus(tmp_path, daemon.url(), reply) as asked,
    ):
        daemon.wait_for_log("proposed=")  # on a busy machine they would end before it looks
        for _ in range(SHORT_JOBS):
            slurm.sbatch(*SMALL, wrap="sleep 3")
        for minutes in range(LATE_JOBS, 0, -1):
            slurm.sbatch(*FULL, f"--time={minutes}", f"-J{PRIVATE}", f"--comment={PRIVATE}")
        daemon.wait_for(lambda: ended_jobs(daemon) >= SHORT_JOBS // 2, "short jobs end")
        daemon.wait_for(lambda: moved_jobs(daemon) >= 1, "a job is moved up")
        stand_still(slurm, webhook)
        daemon.wait_for(lambda: daemon.metric("rltuned_backoff_seconds") == 0, "it goes on")
        wait_for(lambda: webhook.received(ALERT, "resolved"), f"{ALERT} is over")
        since_s = time.monotonic() - started
        check_panels(asked, since_s)
        check_variables(asked)
        check_alerts(asked)
        check_exposition(daemon)
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
        assert PRIVATE not in daemon.log()


def ended_jobs(daemon: Daemon) -> float:
    text = daemon.get("/metrics").splitlines()
    name = "rltuned_job_bounded_slowdown_ratio_count"
    return sum(float(line.rpartition(" ")[2]) for line in text if line.startswith(name))


def moved_jobs(daemon: Daemon) -> float:
    return daemon.metric('rltuned_rank_displacement_places_count{direction="up"}')


def stand_still(slurm: SlurmLab, webhook: Webhook) -> None:
    """slurmctld answers nobody until the alert has come through."""
    controller = slurm.pid("slurmctld")
    os.kill(controller, signal.SIGSTOP)
    try:
        wait_for(lambda: webhook.received(ALERT, "firing"), f"the webhook hears of {ALERT}")
    finally:
        os.kill(controller, signal.SIGCONT)
    (alert,) = {a["annotations"]["runbook_url"] for a in webhook.reply if is_ours(a["labels"])}
    assert alert == f"file:///usr/share/doc/rltuned/runbook.md#{ALERT.lower()}"


def is_ours(labels: dict[str, str]) -> bool:
    return labels["alertname"] == ALERT and labels["cluster"] == "mycluster"


def check_panels(asked: Prometheus, since_s: float) -> None:
    known = set(asked.ask("label/__name__/values"))
    empty = []
    for query in queries():
        assert metrics_of(query.expression) <= known, query
        for cluster, partition in ((".*", ".*"), ("mycluster", "gpu|sla")):
            text = filled(query, cluster, partition, since_s)
            found = asked.numbers(text, instant=query.instant, since_s=since_s)
            if not any(math.isfinite(number) for number in found) and not query.may_be_empty:
                empty.append((query.board, query.panel, text))
    assert empty == []


def filled(query: Query, cluster: str, partition: str, since_s: float) -> str:
    """The expression as Grafana would send it."""
    text = query.expression.replace("$cluster", cluster).replace("$partition", partition)
    text = text.replace("$__rate_interval", RATE).replace("$__range", f"{since_s:.0f}s")
    assert "$" not in text, text
    return text


def check_variables(asked: Prometheus) -> None:
    for path in BOARDS:
        for name, (series, label) in variables(path).items():
            words = series.replace("$cluster", ".*")
            found = asked.ask(f"label/{label}/values", **{"match[]": words})
            expected = {"cluster": {"mycluster"}, "partition": {"gpu", "sla", "short"}}[name]
            assert expected <= set(found), (path, name)


def check_alerts(asked: Prometheus) -> None:
    known = set(asked.ask("label/__name__/values"))
    rules = [rule for group in asked.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules if rule["type"] == "alerting"} == set(alerts())
    for rule in rules:
        assert rule["health"] == "ok", rule
        assert metrics_of(rule["query"]) <= known, rule
        asked.ask("query", query=rule["query"])


def check_exposition(daemon: Daemon) -> None:
    done = ran("promtool", "check", "metrics", input=daemon.get("/metrics"))
    assert (done.stdout, done.stderr) == ("", "")
