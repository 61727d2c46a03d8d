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
_JSON = "application/json"
_HTML = "text/html; charset=utf-8"
CSP: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Style from /status.css and script from /status.js only; nothing inside the pages."""
_FILES: Final = {
    "/status.css": ("text/css; charset=utf-8", ("page.css", "status.css")),
    "/status.js": ("text/javascript; charset=utf-8", ("status.js",)),
}
_TEXTS: Final = {"/runbook": "runbook.md", "/your-job": "your-job.md"}
"""Pages of the documentation."""
_ASKED: Final = ("/job.json", "/plan.json")
_NO_TEXT = b"this installation has no copy of the documentation\n"
GZIP_FROM_BYTES: Final = 1_024
GZIP_LEVEL: Final = 6
MAX_REQUEST_BYTES = 128 * 1024
"""Request line and headers together."""


class Endpoint(ThreadingHTTPServer):
    """Serves until closed, in threads of its own. Where there are too many connections it cuts one:
    the oldest of who has the most. answers: of single jobs; everyone: may see all. patience_s: how
    long a client may take for its request. Raises OSError: it cannot listen there.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 1024  # a burst of clients must not make Prometheus wait for a second SYN

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        *,
        answers: Answers | None,
        everyone: bool,
        patience_s: float,
    ) -> None:
        self.answers, self.everyone, self.patience_s = answers, everyone, patience_s
        self._open: OrderedDict[int, tuple[int, socket.socket]] = OrderedDict()
        self._guard = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)
        self._thread = threading.Thread(
            target=self.serve_forever, name="http", kwargs={"poll_interval": 0.2}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        with self._guard:
            for _, connection in self._open.values():
                _cut(connection)
            self._open.clear()
        self.server_close()
        self._thread.join()

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

    server: Endpoint
    server_version = "rltuned"
    sys_version = ""

    def setup(self) -> None:
        patience_s = self.server.patience_s
        self.request.settimeout(patience_s)
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection, patience_s))

    def asked(self, path: str, query: str, asker: Asker) -> dict[str, Any]:
        """What the asker may know of single jobs."""
        answers = self.server.answers
        if answers is None:
            return {}
        if path != _ASKED[0]:
            return answers.plan(asker)
        asked = _words(query)
        try:
            other = other_of(asked.get("limit"), asked.get("gpus"))
        except ValueError as error:
            return {"rltuned": __version__, "why": str(error)}
        return answers.explain(asked.get("job", ""), asker, other)

    def json(self, found: dict[str, Any]) -> None:
        self.answer(HTTPStatus.OK, json.dumps(found, allow_nan=False).encode(), _JSON)

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


def _words(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}


class MetricsServer(Endpoint):
    """The port. health: what /readyz says; also asked before /metrics answers. status: what / and
    /status.json show; None = there is no such page. board: where the page finds more. The rest: as
    Endpoint. Raises SettingsError: the address cannot be listened on.
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
        self.registry, self.health, self.status, self.board = registry, health, status, board
        rest: dict[str, Any] = {"answers": answers, "everyone": everyone, "patience_s": patience_s}
        try:
            super().__init__((address, port), _Pages, **rest)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SettingsError(
                f"http: cannot listen on {address}:{port}: {reason}; choose another http.port, or "
                "http.enabled = false"
            ) from None

    @property
    def url(self) -> str:
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"


class _Pages(Handler):
    server: MetricsServer

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/metrics":
            self.server.health()  # a metric of it is as fresh as the scrape
            try:
                encode, content_type = choose_encoder(self.headers.get("Accept") or "")
            except (TypeError, ValueError):  # a version that is none: it asks for nothing
                encode, content_type = choose_encoder("")
            self.answer(HTTPStatus.OK, encode(self.server.registry), content_type)
        elif path == "/healthz":
            self.answer(HTTPStatus.OK, b"alive\n")
        elif path == "/readyz":
            health = self.server.health()
            status = HTTPStatus.OK if health.ready else HTTPStatus.SERVICE_UNAVAILABLE
            self.answer(status, (json.dumps(health.document()) + "\n").encode(), _JSON)
        elif not self._shown(path, query):
            self.answer(HTTPStatus.NOT_FOUND, b"not found: try /metrics, /healthz or /readyz\n")

    do_HEAD = do_GET  # noqa: N815 - the standard library's spelling

    def _shown(self, path: str, query: str) -> bool:
        """Answer with a part of the status page; False = there is no such part."""
        status = self.server.status
        if status is None:
            return False
        if path in {"/", "/job"}:
            code, text = pages.answer(path, status(), self.server.board, _words(query))
            self.answer(code, text.encode(), _HTML)
        elif path in _FILES:
            content_type, names = _FILES[path]
            self.answer(HTTPStatus.OK, "".join(map(style, names)).encode(), content_type)
        elif path == "/status.json":
            self.json(status())
        elif path in _ASKED:
            self.json(self.asked(path, query, Asker(sees_all=self.server.everyone)))
        elif path in _TEXTS:
            texts = [file.read_text("utf-8") for file in shared_files("docs", _TEXTS[path])]
            if texts:
                self.answer(HTTPStatus.OK, pages.text_page(texts[0]).encode(), _HTML)
            else:
                self.answer(HTTPStatus.NOT_FOUND, _NO_TEXT)
        else:
            return False
        return True
