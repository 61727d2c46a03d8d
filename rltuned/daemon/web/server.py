"""/metrics, health and status page: read-only, never calls Slurm, bounded against slow clients."""

import gzip
import io
import json
import socket
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from rltuned import __version__
from rltuned.daemon.state import Health
from rltuned.daemon.web import pages
from rltuned.daemon.web.answers import Answers, Asker
from rltuned.daemon.web.status import Board
from rltuned.daemon.what_if import other_of
from rltuned.errors import SettingsError
from rltuned.report import style
from rltuned.shared_files import shared_files

MAX_CONNECTIONS = 32
"""When one more comes, the oldest of the client with the most is cut: slow readers can never keep
Prometheus out."""
PATIENCE_S = 5.0
"""For the whole request, and again for each piece of the answer."""
JSON = "application/json"
_HTML, _CSS = "text/html; charset=utf-8", "text/css; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"
CSP: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Style from /status.css and script from /status.js only; nothing inside the pages."""
_STYLES: Final = ("page.css", "status.css")
_TEXTS: Final = {"/runbook": "runbook.md", "/your-job": "your-job.md"}
"""Pages of the documentation."""
_ASKED: Final = ("/job.json", "/plan.json")
_PAGES: Final = ("/", "/job", "/status.css", "/status.js", "/status.json")
_STATUS_PATHS = frozenset({*_PAGES, *_TEXTS, *_ASKED})
_NO_TEXT = b"this installation has no copy of the documentation\n"
GZIP_FROM_BYTES: Final = 1_024
GZIP_LEVEL: Final = 6
MAX_REQUEST_BYTES = 128 * 1024
"""Request line and headers together."""


class MetricsServer:
    """Serves until closed, in threads of its own.

    health: what /readyz says; also asked before /metrics answers. status: what / and /status.json
    show; None = there is no such page. board: where the page finds more. answers: of single jobs;
    everyone: may see all. patience_s: how long a client may take for its request. Raises
    SettingsError: the address cannot be listened on.
    """

    def __init__(
        self,
        address: str,
        port: int,
        registry: CollectorRegistry,
        health: Callable[[], Health],
        *,
        patience_s: float = PATIENCE_S,
        status: Callable[[], dict[str, Any]] | None = None,
        answers: Answers | None = None,
        everyone: bool = False,
        board: Board | None = None,
    ) -> None:
        handler = type(
            "Handler",
            (Handler,),
            {
                "registry": registry,
                "health": staticmethod(health),
                "status": None if status is None else staticmethod(status),
                "answers": answers,
                "everyone": everyone,
                "board": board,
                "timeout": patience_s,
            },
        )
        try:
            self._server = Endpoint((address, port), handler)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SettingsError(
                f"http: cannot listen on {address}:{port}: {reason}; choose another http.port, or "
                "http.enabled = false"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="http", kwargs={"poll_interval": 0.2}
        )
        self._thread.daemon = True
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.cut_all()
        self._server.server_close()
        self._thread.join()


class Endpoint(ThreadingHTTPServer):
    """Takes connections, and cuts one where there are too many: the oldest of who has the most."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 1024  # a burst of clients must not make Prometheus wait for a second SYN

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: OrderedDict[int, tuple[int, socket.socket]] = OrderedDict()
        self._guard = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        owner = self.owner_of(request)
        with self._guard:
            if len(self._open) >= MAX_CONNECTIONS:
                counts = Counter(one for one, _ in (*self._open.values(), (owner, request)))
                most = max(counts.values())
                crowd = {one for one, count in counts.items() if count == most}
                number = next(n for n, (one, _) in self._open.items() if one in crowd)
                _cut(self._open.pop(number)[1])
            self._open[id(request)] = owner, request
        super().process_request(request, client_address)

    def owner_of(self, _request: Any) -> int:
        """Who has made a connection, where that is known."""
        return 0

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no trouble, and never a traceback on standard error."""

    def numbers(self) -> tuple[int, ...]:
        with self._guard:
            return tuple(self._open)

    def cut_all(self) -> None:
        with self._guard:
            for _, connection in self._open.values():
                _cut(connection)
            self._open.clear()


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has gone by itself


class _Request(io.RawIOBase):
    """What one client sends: so many bytes at most, in so much time altogether. A timeout for each
    piece alone would let a client send one byte every few seconds for ever.
    """

    def __init__(self, connection: socket.socket, patience_s: float) -> None:
        super().__init__()
        self._connection = connection
        self._patience_s = patience_s
        self._deadline = time.monotonic() + patience_s
        self._left = MAX_REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0 or self._left <= 0:
            raise TimeoutError("too slow, or too long")
        self._connection.settimeout(left_s)
        try:
            count = self._connection.recv_into(buffer, min(len(buffer), self._left))
        finally:
            self._connection.settimeout(self._patience_s)
        self._left -= count
        return count


class Handler(BaseHTTPRequestHandler):
    """One request per connection."""

    registry: CollectorRegistry
    health: Callable[[], Health]
    status: Callable[[], dict[str, Any]] | None
    answers: Answers | None
    everyone: bool
    board: Board | None
    timeout = PATIENCE_S
    server_version = "rltuned"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection, self.timeout))

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/metrics":
            type(self).health()  # a metric of it is as fresh as the scrape
            try:
                encode, content_type = choose_encoder(self.headers.get("Accept") or "")
            except (TypeError, ValueError):  # a version that is none: it asks for nothing
                encode, content_type = choose_encoder("")
            self.answer(HTTPStatus.OK, encode(self.registry), content_type)
        elif path == "/healthz":
            self.answer(HTTPStatus.OK, b"alive\n")
        elif path == "/readyz":
            health = type(self).health()
            status = HTTPStatus.OK if health.ready else HTTPStatus.SERVICE_UNAVAILABLE
            body = json.dumps(health.document()) + "\n"
            self.answer(status, body.encode(), JSON)
        elif not self._shown(path, query):
            self.answer(HTTPStatus.NOT_FOUND, b"not found: try /metrics, /healthz or /readyz\n")

    def _shown(self, path: str, query: str) -> bool:
        """Answer with a part of the status page; False = there is no such part."""
        status = type(self).status
        if status is None or path not in _STATUS_PATHS:
            return False
        if path in {"/", "/job"}:
            asked = {name: values[0] for name, values in parse_qs(query).items()}
            code, text = pages.answer(path, status(), type(self).board, asked)
            self.answer(code, text.encode(), _HTML)
        elif path == "/status.css":
            self.answer(HTTPStatus.OK, "".join(map(style, _STYLES)).encode(), _CSS)
        elif path == "/status.js":
            self.answer(HTTPStatus.OK, style("status.js").encode(), _SCRIPT)
        elif path in _TEXTS:
            texts = [file.read_text("utf-8") for file in shared_files("docs", _TEXTS[path])]
            if texts:
                self.answer(HTTPStatus.OK, pages.text_page(texts[0]).encode(), _HTML)
            else:
                self.answer(HTTPStatus.NOT_FOUND, _NO_TEXT)
        else:
            found = (
                self.asked(path, query, Asker(sees_all=type(self).everyone))
                if path in _ASKED
                else status()
            )
            self.answer(HTTPStatus.OK, json.dumps(found, allow_nan=False).encode(), JSON)
        return True

    def asked(self, path: str, query: str, asker: Asker) -> dict[str, Any]:
        """What the asker may know of single jobs."""
        answers = type(self).answers
        if answers is None:
            return {}
        if path != _ASKED[0]:
            return answers.plan(asker)
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        try:
            other = other_of(asked.get("limit"), asked.get("gpus"))
        except ValueError as error:
            return {"rltuned": __version__, "why": str(error)}
        return answers.explain(asked.get("job", ""), asker, other)

    do_HEAD = do_GET  # noqa: N815 - the standard library's spelling

    def answer(
        self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        self.send_header("Vary", "Accept-Encoding")
        if len(body) >= GZIP_FROM_BYTES and gzip_accepted(
            self.headers.get("Accept-Encoding") or ""
        ):
            body = gzip.compress(body, GZIP_LEVEL, mtime=0)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", CSP)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Scrapes are not worth a line each."""
