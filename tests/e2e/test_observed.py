"""Prometheus scrapes a daemon that drives a real Slurm: every panel, variable and alert is asked.

In between slurmctld stands still, and the alert about it travels through Alertmanager to a webhook.
"""

import json
import math
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL, waiting
from tests.lab import SlurmLab
from tests.programs import ran, rltuned
from tests.queries import (
    ALERTS,
    BOARDS,
    DEPLOY,
    RECORDING,
    Query,
    alerts,
    metrics_of,
    queries,
    variables,
)
from tests.switchback_world import switchback_at
from tests.waits import PATIENCE_S, wait_for


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Webhook:
    """Keeps every alert that it receives."""

    def __init__(self) -> None:
        reply: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Not worth a line."""

        self.reply = reply
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def received(self, alert: str, status: str) -> bool:
        return any(a["labels"]["alertname"] == alert and a["status"] == status for a in self.reply)


@contextmanager
def program_running(folder: Path, name: str, *words: str, url: str) -> Iterator[None]:
    """A program in the background, from when it answers on."""
    with (folder / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)
    try:
        wait_for(lambda: answers(f"{url}/-/ready"), f"{name} is ready")
        yield
    finally:
        child.terminate()
        child.wait(timeout=PATIENCE_S)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def alertmanager(folder: Path, webhook: Webhook) -> Iterator[str]:
    """Its address. Our example settings, but quick."""
    config, port = folder / "alertmanager.yml", free_port()
    example = (DEPLOY / "prometheus" / "alertmanager.yml").read_text()
    swaps = {
        "http://127.0.0.1:9900/": webhook.url,
        "group_wait: 30s": "group_wait: 1s",
        "route:\n": "route:\n  group_interval: 1s\n",
    }
    config.write_text(swapped(example, swaps))
    url = f"http://127.0.0.1:{port}"
    words = (
        "prometheus-alertmanager", f"--config.file={config}", f"--storage.path={folder / 'am'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    )  # fmt: skip
    with program_running(folder, "alertmanager", *words, url=url):
        yield url


@contextmanager
def prometheus(folder: Path, target: str, reply: str) -> Iterator["Prometheus"]:
    """Our example settings and rules, but every second, and no alert waits for longer."""
    example = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    config = folder / "prometheus.yml"
    config.write_text(
        swapped(
            example,
            {
                "127.0.0.1:9841": target.removeprefix("http://"),
                "127.0.0.1:9093": reply.removeprefix("http://"),
                "scrape_interval: 30s": "scrape_interval: 1s",
                "evaluation_interval: 30s": "evaluation_interval: 1s",
            },
        )
    )
    (folder / RECORDING.name).write_text(
        swapped(RECORDING.read_text(), {"interval: 1m": "interval: 1s"})
    )
    lines = ALERTS.read_text().splitlines(keepends=True)
    (folder / ALERTS.name).write_text(
        "".join(s for s in lines if not s.startswith("        for: "))
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = (
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip
    with program_running(folder, "prometheus", *words, url=url):
        yield Prometheus(url)


def swapped(text: str, swaps: Mapping[str, str]) -> str:
    for old, new in swaps.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Prometheus:
    """Its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **words: str) -> Any:
        """The data of an answer; AssertionError with its own words when it is an error."""
        query = urllib.parse.urlencode(words)
        try:
            with urllib.request.urlopen(  # noqa: S310
                f"{self.url}/api/v1/{path}?{query}", timeout=PATIENCE_S
            ) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {words}: {error.read().decode()}") from None
        assert found["status"] == "success", found
        assert not found.get("warnings"), found
        return found["data"]

    def numbers(self, expression: str, *, instant: bool, since_s: float) -> list[float]:
        """All values of an expression, of all series, now or over time."""
        if instant:
            rows = [r["value"] for r in self.ask("query", query=expression)["result"]]
        else:
            now = time.time()
            found = self.ask(
                "query_range", query=expression, start=f"{now - since_s}", end=f"{now}", step="1"
            )
            rows = [value for r in found["result"] for value in r["values"]]
        return [float(value) for _, value in rows]


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


def test_dashboards_and_alerts_of_a_daemon(slurm: SlurmLab, config: Path, tmp_path: Path) -> None:
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
