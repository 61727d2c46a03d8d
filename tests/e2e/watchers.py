"""Debian's Prometheus and Alertmanager on our example settings, and who receives an alert."""

import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.queries import ALERTS, DEPLOY, RECORDING
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
def running(folder: Path, name: str, *words: str, url: str) -> Iterator[None]:
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
    with running(folder, "alertmanager", *words, url=url):
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
    with running(folder, "prometheus", *words, url=url):
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
