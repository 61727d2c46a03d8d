"""What the daemon serves by HTTP, by waitress: the port, for all, and the socket, for users of this
machine. Reads and never calls Slurm.

What comes over TCP is anonymous, whoever connects: a proxy there speaks for everybody. The socket
lies beside the pause file; there the kernel says who asks (SO_PEERCRED).
"""

import gzip
import http.client
import json
import logging
import os
import pwd
import socket
import stat
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer

from rltuned.daemon.documents import Document
from rltuned.daemon.state import Health
from rltuned.daemon.web import pages
from rltuned.daemon.web.board import Asker, Board
from rltuned.errors import SettingsError
from rltuned.files import shared_files
from rltuned.report import style

MAX_CONNECTIONS: Final = 32
"""When one more comes, the oldest of who has the most is cut: slow readers can never keep
Prometheus out, and no user the others."""
THREADS: Final = 8
"""That make answers; who reads slowly takes none of them."""
PATIENCE_S: Final = 5.0
"""For the whole request, and again for each piece of the answer."""
MAX_REQUEST_BYTES: Final = 64 * 1024
_GZIP_FROM_BYTES: Final = 1_024
_QUEUE: Final = 1_024
"""Connections that the kernel keeps: a burst of clients must not make Prometheus wait."""
_JSON, _HTML = "application/json", "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"
_HEADERS: Final = {
    "Vary": "Accept-Encoding",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Environ = Mapping[str, Any]
"""Of WSGI; REMOTE_ADDR of the socket is the asker's uid."""
Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""
Table = Mapping[str, Callable[[Environ], Answer]]
"""What answers, by path."""


# -- What is answered ------------------------------------------------------------------------------


def _words(environ: Environ) -> dict[str, str]:
    """What the address asks for."""
    return {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}


def _json(found: Document, code: HTTPStatus = HTTPStatus.OK) -> Answer:
    return code, _JSON, json.dumps(found, allow_nan=False).encode()


def _html(text: str, code: HTTPStatus = HTTPStatus.OK) -> Answer:
    return code, _HTML, text.encode()


def _documentation(name: str, _environ: Environ) -> Answer:
    for file in shared_files("docs", name):
        return _html(pages.text_page(file.read_text("utf-8")))
    return HTTPStatus.NOT_FOUND, _TEXT, b"this installation has no copy of the documentation\n"


def _styled(kind: str, names: tuple[str, ...], _environ: Environ) -> Answer:
    return HTTPStatus.OK, f"text/{kind}; charset=utf-8", "".join(map(style, names)).encode()


def port_table(
    registry: CollectorRegistry,
    health: Callable[[], Health],
    status: Callable[[], Document],
    board: Board,
) -> Table:
    """What the port answers. health: what /readyz says; asked before /metrics answers too, so that
    its metric is fresh. status: what / and /status.json show.
    """

    def metrics(environ: Environ) -> Answer:
        health()
        try:
            encode, kind = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        except (TypeError, ValueError):  # a version that is none: it asks for nothing
            encode, kind = choose_encoder("")
        return HTTPStatus.OK, kind, encode(registry)

    def ready(_environ: Environ) -> Answer:
        found = health()
        code = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _json(found.document(), code)

    return {
        "/": lambda environ: _html(pages.page(status(), board, _words(environ))),
        "/job": lambda environ: _html(*pages.job_page(status(), board, _words(environ))),
        "/metrics": metrics,
        "/readyz": ready,
        "/healthz": lambda _: (HTTPStatus.OK, _TEXT, b"alive\n"),
        "/status.json": lambda _: _json(status()),
        "/plan.json": lambda _: _json(board.plan(Asker())),
        "/job.json": lambda environ: _json(board.asked(_words(environ), Asker())),
        "/status.css": partial(_styled, "css", ("page.css", "status.css")),
        "/status.js": partial(_styled, "javascript", ("status.js",)),
        "/runbook": partial(_documentation, "runbook.md"),
        "/your-job": partial(_documentation, "your-job.md"),
    }


def socket_table(status: Callable[[], Document], board: Board, state_dir: Path) -> Table:
    """What the socket answers: to each user what that one may see. state_dir: said in every answer,
    so that nobody takes the daemon of another state folder for his own.
    """

    def asker_of(environ: Environ) -> Asker:
        uid, name = int(environ["REMOTE_ADDR"]), ""
        with suppress(KeyError):
            name = pwd.getpwuid(uid).pw_name
        return Asker(name, is_admin=uid in {0, os.geteuid()})

    def said(found: Document) -> Answer:
        return _json({**found, "state_dir": str(state_dir)})

    return {
        "/status.json": lambda _: said(status()),
        "/plan.json": lambda environ: said(board.plan(asker_of(environ))),
        "/job.json": lambda environ: said(board.asked(_words(environ), asker_of(environ))),
    }


def _answered(
    table: Table, environ: Environ, start: Callable[[str, list[tuple[str, str]]], Any]
) -> list[bytes]:
    """The application of WSGI."""
    route = table.get(environ["PATH_INFO"])
    if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
        status, kind, body = HTTPStatus.NOT_IMPLEMENTED, _TEXT, b"only GET and HEAD\n"
    elif route is None:
        status, kind, body = HTTPStatus.NOT_FOUND, _TEXT, b"not found\n"
    else:
        status, kind, body = route(environ)
    headers = {**_HEADERS, "Content-Type": kind}
    if len(body) >= _GZIP_FROM_BYTES and gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
        body = gzip.compress(body, 6, mtime=0)
        headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(body))
    start(f"{status.value} {status.phrase}", [*headers.items()])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


# -- The server ------------------------------------------------------------------------------------


class _Channel(HTTPChannel):  # type: ignore[misc]
    """One connection, for one request. owner: the uid where that is known, else empty."""

    def __init__(
        self, server: "Endpoint", sock: socket.socket, addr: Any, *rest: Any, **more: Any
    ) -> None:
        self.owner, self.turn = "", ("", "")
        if sock.family == socket.AF_UNIX:
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            self.owner = str(struct.unpack("3i", raw)[1])
            addr = self.owner, None
        super().__init__(server, sock, addr, *rest, **more)

    def service(self) -> None:
        self.requests[0].headers["CONNECTION"] = "close"
        try:
            super().service()
        finally:
            self.server.answered(self)


class Endpoint(BaseWSGIServer):  # type: ignore[misc]
    """Serves a table until closed. patience_s: how long a client may take for its request, and for
    each piece of the answer. path: of a socket, removed at the end.
    """

    channel_class = _Channel

    def __init__(
        self,
        listening: socket.socket,
        table: Table,
        patience_s: float = PATIENCE_S,
        path: Path | None = None,
    ) -> None:
        self.patience_s, self._path = patience_s, path
        self._inode = path.lstat().st_ino if path else 0
        self._guard = threading.Lock()
        self._turns: dict[tuple[str, str], deque[_Channel]] = {}
        self._map: dict[int, Any] = {}
        logging.getLogger("waitress").setLevel(logging.CRITICAL)  # a client that went away is none
        settings = Adjustments(
            ident="rltuned", threads=THREADS, backlog=_QUEUE, asyncore_use_poll=True,
            connection_limit=_QUEUE, cleanup_interval=1, log_socket_errors=False,
            max_request_header_size=MAX_REQUEST_BYTES, max_request_body_size=MAX_REQUEST_BYTES,
        )  # fmt: skip
        where = (listening.family, socket.SOCK_STREAM, 0, listening.getsockname())
        super().__init__(
            partial(_answered, table), self._map, _sock=listening, adj=settings, sockinfo=where,
            bind_socket=False,
        )  # fmt: skip
        self._thread = threading.Thread(target=self.run, name="http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host = self.effective_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.effective_port}"

    def getsockname(self) -> tuple[str, int]:
        found = self.socket.getsockname()
        return (str(found[0]), int(found[1])) if isinstance(found, tuple) else (str(found), 0)

    def close(self) -> None:
        """End all connections; called by the loop of waitress too, for the listening socket."""
        if threading.current_thread() is self._thread:
            super().close()
            return
        woken = threading.Event()

        def end() -> None:
            woken.wait()  # else the loop, woken by another, closes the pipe that is written to here
            wasyncore.close_all(self._map, ignore_all=True)

        self.trigger.pull_trigger(end)
        woken.set()
        self._thread.join()
        self.task_dispatcher.shutdown(timeout=1)
        with suppress(OSError):
            if self._path is not None and self._path.lstat().st_ino == self._inode:
                self._path.unlink()

    def handle_accept(self) -> None:
        super().handle_accept()
        channels = list(self.active_channels.values())
        if len(channels) > MAX_CONNECTIONS:
            counts = Counter(one.owner for one in channels)
            most = max(counts.values())
            next(one for one in channels if counts[one.owner] == most).handle_close()

    def maintenance(self, now: float) -> None:
        """Cut who takes too long. A timeout for each piece of a request would let a client send one
        byte every few seconds for ever.
        """
        for one in list(self.active_channels.values()):
            reads = one.total_outbufs_len > 0
            since = one.last_activity if reads or one.close_when_flushed else one.creation_time
            if (reads or not one.requests) and since < now - self.patience_s:
                one.handle_close()

    def add_task(self, task: _Channel) -> None:
        """One answer from a path is made at a time for each known user."""
        task.turn = (task.owner or f"#{id(task)}", task.requests[0].path)
        with self._guard:
            waiting = self._turns.setdefault(task.turn, deque())
            waiting.append(task)
            is_first = len(waiting) == 1
        if is_first:
            super().add_task(task)

    def answered(self, task: _Channel) -> None:
        with self._guard:
            waiting = self._turns[task.turn]
            waiting.popleft()
            following = next(iter(waiting), None)
            if following is None:
                del self._turns[task.turn]
        if following is not None:
            super().add_task(following)


def listen(address: str, port: int) -> socket.socket:
    """Of the port. Raises SettingsError: the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=_QUEUE)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            f"http: cannot listen on {address}:{port}: {reason}; choose another http.port, or "
            "http.enabled = false"
        ) from None


def listen_at(path: Path) -> socket.socket:
    """Of the socket; its folder is made where that can be done, and the socket of a daemon that is
    no more is removed. Raises SettingsError: another daemon answers there, or it cannot be made.
    """
    try:
        with suppress(OSError):
            path.parent.mkdir(mode=0o755)
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise FileExistsError(0, "something else lies there")
            try:
                connected(path, 1.0).close()
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise FileExistsError(0, "another daemon answers there")
        with reached(path) as address:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.bind(address)
        path.chmod(0o666)  # all may ask; what is answered depends on who asks
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(f"daemon.pause_file: no socket at {path}: {reason}") from None
    return made


# -- The other end of the socket -------------------------------------------------------------------


@contextmanager
def reached(path: Path) -> Iterator[str]:
    """An address of a socket, by a file descriptor of its folder: the kernel takes no more than 107
    characters. Raises OSError.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(path: Path, patience_s: float) -> socket.socket:
    """A connection to the daemon there. Raises OSError."""
    with ExitStack() as stack:
        made = stack.enter_context(closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)))
        # a socket with a timeout of Python's would not wait where others ask at once
        patience = struct.pack("@ll", int(patience_s), int(patience_s % 1 * 1e6))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        try:
            with reached(path) as address:
                made.connect(address)
        except BlockingIOError:
            raise TimeoutError(0, "too many ask at once") from None
        made.settimeout(patience_s)
        stack.pop_all()
    return made


def connection(path: Path, patience_s: float) -> http.client.HTTPConnection:
    """HTTP to the daemon's socket. Raises OSError."""
    made = http.client.HTTPConnection("localhost", timeout=patience_s)
    made.sock = connected(path, patience_s)
    return made
