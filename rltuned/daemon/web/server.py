"""What the daemon serves by HTTP, by waitress: the port, for all, and the socket, for users of this
machine. Reads and never calls Slurm.

The port has /metrics, health and the status page. What comes over TCP is anonymous, whoever
connects: a proxy there speaks for everybody. The socket lies beside the pause file, in the runtime
directory of the service; there the kernel says who asks (SO_PEERCRED).
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
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
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
from waitress.task import WSGITask

from rltuned import __version__
from rltuned.core.decide import Knobs
from rltuned.core.starts import Expected, expectation
from rltuned.daemon.documents import (
    explanation,
    find_job,
    of_task,
    past_of,
    plan_document,
    situation,
    user_of,
)
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import Health, HealthState
from rltuned.daemon.web import pages
from rltuned.daemon.web.status import Board
from rltuned.daemon.what_if import OtherRequest, WhatIf, other_of
from rltuned.daemon.wiring import Rig
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import SettingsError
from rltuned.files import shared_files
from rltuned.report import style

# What the daemon answers about single jobs, to users who may not read its journal.
#
# The numbers are those of its last decision, which knows what of a priority is rltuned's own. A job
# is shown to its user, to root and the daemon's user, and to all where http.jobs shows jobs.


Document = dict[str, Any]
NOT_SHOWN: Final = "it shows jobs to their own users over its socket, and to all with http.jobs"
NO_DECISION: Final = "it has made no decision yet, or only observes"
NO_JOB: Final = "it sees no pending or running job {}"


@dataclass(frozen=True, slots=True)
class Asker:
    """user: empty = not known. is_admin: root, or the daemon's own user. sees_all: or all are shown
    to all.
    """

    user: str = ""
    is_admin: bool = False
    sees_all: bool = False

    def sees(self, user: str) -> bool:
        """Whether it may see the jobs of a user."""
        return self.sees_all or bool(self.user and self.user == user)


class Answers:
    """Follows the cycles. Written by the loop's thread, read by those of the endpoint. journal: its
    file. users: whether all may know whose a job is. expected: the last forecast. now: Unix
    time. what_if: plays other requests; None = none are played.
    """

    def __init__(
        self,
        journal: Path,
        *,
        users: bool = False,
        expected: Callable[[], Expected | None] = lambda: None,
        now: Callable[[], float] = lambda: 0.0,
        what_if: WhatIf | None = None,
    ) -> None:
        self._journal, self._users, self._expected = journal, users, expected
        self._what_if, self._now = what_if, now
        self._knobs = Knobs()
        self._last: tuple[Snapshot, CycleReport, Knobs] | None = None

    def loaded(self, rig: Rig) -> None:
        self._knobs = rig.knobs

    def cycle(self, report: CycleReport) -> None:
        only_observes = report.mode is HealthState.OBSERVE and report.ok
        if report.snapshot is not None and (report.decision is not None or only_observes):
            seen = report.snapshot if report.decision is None else report.decision.snapshot
            # exchanged whole, since a thread of the endpoint may be reading the old one
            self._last = seen, replace(report, decision=report.in_force()), self._knobs

    def explain(self, name: str, asker: Asker, other: OtherRequest | None = None) -> Document:
        """All that is known of one job, or `why` not. other: also, when it would start so."""
        last = self._last
        if last is None:
            return _nothing(NO_DECISION)
        seen, report, knobs = last
        if not asker.sees(user_of(seen, name)):
            return _nothing(NOT_SHOWN)
        found = explanation(name, seen, report.context, report.decision)
        if found is None:
            return _nothing(NO_JOB.format(name))
        found |= past_of(self._journal, seen.cluster, found)
        job = find_job(seen, name)
        if job is not None:
            start = self._start(job.job_id, asker, plays=other is None)
            found |= of_task(start, job, name)
            refusal = found["refusal"]
            found |= situation(job, seen, knobs, report.groups, report.decision, refusal=refusal)
            if other is not None and self._what_if is not None:
                asks = self._what_if.ask
                told = asks(job.job_id, other, asker.user, is_admin=asker.is_admin)
                played = told["what_if"]
                found |= {**told, "what_if": played and of_task(played, job, name)}
        return {"rltuned": __version__, "job": found}

    def _start(self, job_id: JobId, asker: Asker, *, plays: bool) -> Document:
        """When it starts. One that came after the last forecast is played now. plays: unless that
        would take the turn of another request.
        """
        expected = self._expected()
        told = expectation(expected, job_id, self._now())
        if not plays or expected is None or expected.start_of(job_id) or self._what_if is None:
            return told
        played = self._what_if.ask(job_id, OtherRequest(), asker.user, is_admin=asker.is_admin)
        return told if played["what_if"] is None else {k: played["what_if"][k] for k in told}

    def plan(self, asker: Asker) -> Document:
        """The decision as `plan --json` has it, with the jobs that the asker may see."""
        decision = None if self._last is None else self._last[1].decision
        if decision is None:
            return _nothing(NO_DECISION)
        if not asker.sees_all and not asker.user:
            return _nothing(NOT_SHOWN)
        whole = plan_document(decision, self._expected())
        if not asker.is_admin and not self._users:
            hidden = [
                {**j, "user": j["user"] if asker.user == j["user"] else ""} for j in whole["jobs"]
            ]
            whole["jobs"] = hidden
        if asker.sees_all:
            return {"rltuned": __version__, "plan": whole}
        mine = [one for one in whole["jobs"] if asker.sees(one["user"])]
        return {"rltuned": __version__, "plan": {**whole, "jobs": mine, "joint": None}}


def _nothing(why: str) -> Document:
    return {"rltuned": __version__, "why": why}


MAX_CONNECTIONS: Final = 32
"""When one more comes, the oldest of who has the most is cut: slow readers can never keep
Prometheus out, and no user the others."""
THREADS: Final = 8
"""That make answers; who reads slowly takes none of them."""
PATIENCE_S: Final = 5.0
"""For the whole request, and again for each piece of the answer."""
MAX_REQUEST_BYTES: Final = 64 * 1024
"""Of request line and headers together, and of what follows them."""
GZIP_FROM_BYTES: Final = 1_024
GZIP_LEVEL: Final = 6
_QUEUE: Final = 1_024
"""Connections that the kernel keeps: a burst of clients must not make Prometheus wait."""
_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"
CSP: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Style from /status.css and script from /status.js only; nothing inside the pages."""
_HEADERS: Final = (
    ("Vary", "Accept-Encoding"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", CSP),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_FILES: Final = {
    "/status.css": ("text/css; charset=utf-8", ("page.css", "status.css")),
    "/status.js": ("text/javascript; charset=utf-8", ("status.js",)),
}
_TEXTS: Final = {"/runbook": "runbook.md", "/your-job": "your-job.md"}
"""Pages of the documentation."""
_STATUS, _JOB, _PLAN = "/status.json", "/job.json", "/plan.json"
_PATHS: Final = frozenset({"/", "/job", _STATUS, _JOB, _PLAN, *_FILES, *_TEXTS})
_CREDENTIALS: Final = struct.Struct("3i")
_TIMEVAL: Final = struct.Struct("@ll")
_EVERYONE: Final = 0o666
"""May ask; what is answered depends on who asks."""

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""
Environ = Mapping[str, Any]
"""Of WSGI; `rltuned.socket` is the connection."""


# -- The server ------------------------------------------------------------------------------------


class _Task(WSGITask):  # type: ignore[misc]
    def execute(self) -> None:
        self.set_close_on_finish()  # one request of each connection
        super().execute()

    def get_environment(self) -> dict[str, Any]:
        made: dict[str, Any] = super().get_environment()
        return {**made, "rltuned.socket": self.channel.socket}


class _Channel(HTTPChannel):  # type: ignore[misc]
    """One connection. owner: who has made it, where that is known."""

    task_class = _Task

    def __init__(self, server: "Endpoint", sock: socket.socket, *rest: Any, **more: Any) -> None:
        self.owner = server.owner_of(sock)
        super().__init__(server, sock, *rest, **more)

    def service(self) -> None:
        try:
            super().service()
        finally:
            self.server.answered(self)


class Endpoint(BaseWSGIServer):  # type: ignore[misc]
    """Serves until closed. route: answers requests. patience_s: how long a client may take for its
    request, and for each piece of the answer.
    """

    channel_class = _Channel

    def __init__(
        self, listening: socket.socket, route: Callable[[Environ], Answer], patience_s: float
    ) -> None:
        self.patience_s = patience_s
        self._guard = threading.Lock()
        self._turns: defaultdict[tuple[int, str], deque[Any]] = defaultdict(deque)
        self._turn_of: dict[int, tuple[int, str]] = {}
        self._map: dict[int, Any] = {}
        logging.getLogger("waitress").setLevel(logging.CRITICAL)  # a client that went away is none
        settings = Adjustments(
            ident="rltuned", threads=THREADS, backlog=_QUEUE, asyncore_use_poll=True,
            connection_limit=_QUEUE, cleanup_interval=1, log_socket_errors=False,
            max_request_header_size=MAX_REQUEST_BYTES, max_request_body_size=MAX_REQUEST_BYTES,
        )  # fmt: skip
        where = (listening.family, socket.SOCK_STREAM, 0, listening.getsockname())
        super().__init__(
            _application(route), self._map, _sock=listening, adj=settings, sockinfo=where,
            bind_socket=False,
        )  # fmt: skip
        self._thread = threading.Thread(target=self.run, name="http", daemon=True)
        self._thread.start()

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

    def owner_of(self, _connection: socket.socket) -> int:
        return 0

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

    def add_task(self, task: Any) -> None:
        """One answer from a path is made at a time for each known user."""
        turn = (task.owner or -id(task), task.requests[0].path)
        with self._guard:
            self._turn_of[id(task)] = turn
            self._turns[turn].append(task)
            is_first = len(self._turns[turn]) == 1
        if is_first:
            super().add_task(task)

    def answered(self, task: Any) -> None:
        with self._guard:
            turn = self._turn_of.pop(id(task))
            self._turns[turn].popleft()
            following = self._turns[turn][0] if self._turns[turn] else None
            if following is None:
                del self._turns[turn]
        if following is not None:
            super().add_task(following)


def _application(route: Callable[[Environ], Answer]) -> Callable[..., list[bytes]]:
    def answer(environ: Environ, start: Callable[[str, list[tuple[str, str]]], Any]) -> list[bytes]:
        if environ["REQUEST_METHOD"] in {"GET", "HEAD"}:
            status, kind, body = route(environ)
        else:
            status, kind, body = HTTPStatus.NOT_IMPLEMENTED, _TEXT, b"only GET and HEAD\n"
        headers = [*_HEADERS, ("Content-Type", kind)]
        if len(body) >= GZIP_FROM_BYTES and gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
            body = gzip.compress(body, GZIP_LEVEL, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        headers.append(("Content-Length", str(len(body))))
        start(f"{status.value} {status.phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


def _words(environ: Environ) -> dict[str, str]:
    """What the address asks for."""
    return {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}


def _json(found: Mapping[str, Any]) -> Answer:
    return HTTPStatus.OK, _JSON, json.dumps(found, allow_nan=False).encode()


def _asked(answers: Answers | None, environ: Environ, asker: Asker) -> dict[str, Any]:
    """What the asker may know of single jobs."""
    if answers is None:
        return {}
    if environ["PATH_INFO"] == _PLAN:
        return answers.plan(asker)
    words = _words(environ)
    try:
        other = other_of(words.get("limit"), words.get("gpus"))
    except ValueError as error:
        return {"rltuned": __version__, "why": str(error)}
    return answers.explain(words.get("job", ""), asker, other)


# -- The port --------------------------------------------------------------------------------------


class MetricsServer(Endpoint):
    """The port. health: what /readyz says; also asked before /metrics answers. status: what / and
    /status.json show; None = there is no such page. board: where the page finds more. answers: of
    single jobs; everyone: may see all. Raises SettingsError: the address cannot be listened on.
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
        self.answers, self.everyone = answers, everyone
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            listening = socket.create_server((address, port), family=family, backlog=_QUEUE)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SettingsError(
                f"http: cannot listen on {address}:{port}: {reason}; choose another http.port, or "
                "http.enabled = false"
            ) from None
        super().__init__(listening, self._route, patience_s)

    @property
    def url(self) -> str:
        host = self.effective_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.effective_port}"

    def _route(self, environ: Environ) -> Answer:
        path = environ["PATH_INFO"]
        always = {"/metrics": self._metrics, "/healthz": _alive, "/readyz": self._ready}
        if path in always:
            return always[path](environ)
        if self.status is None or path not in _PATHS:
            return HTTPStatus.NOT_FOUND, _TEXT, b"not found: try /metrics, /healthz or /readyz\n"
        if path in _FILES:
            kind, names = _FILES[path]
            return HTTPStatus.OK, kind, "".join(map(style, names)).encode()
        if path in _TEXTS:
            return _documentation(_TEXTS[path])
        if path in {_JOB, _PLAN}:
            return _json(_asked(self.answers, environ, Asker(sees_all=self.everyone)))
        if path == _STATUS:
            return _json(self.status())
        code, text = pages.answer(path, self.status(), self.board, _words(environ))
        return code, _HTML, text.encode()

    def _metrics(self, environ: Environ) -> Answer:
        self.health()  # a metric of it is as fresh as the scrape
        try:
            encode, kind = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        except (TypeError, ValueError):  # a version that is none: it asks for nothing
            encode, kind = choose_encoder("")
        return HTTPStatus.OK, kind, encode(self.registry)

    def _ready(self, _environ: Environ) -> Answer:
        health = self.health()
        code = HTTPStatus.OK if health.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return code, _JSON, (json.dumps(health.document()) + "\n").encode()


def _alive(_environ: Environ) -> Answer:
    return HTTPStatus.OK, _TEXT, b"alive\n"


def _documentation(name: str) -> Answer:
    for file in shared_files("docs", name):
        return HTTPStatus.OK, _HTML, pages.text_page(file.read_text("utf-8")).encode()
    return HTTPStatus.NOT_FOUND, _TEXT, b"this installation has no copy of the documentation\n"


# -- The socket ------------------------------------------------------------------------------------


class QuestionServer(Endpoint):
    """path: of the socket; its folder is made where that can be done. status: what `rltuned status`
    shows. state_dir: said in every answer, so that nobody takes the daemon of another state folder
    for his own. Raises SettingsError: it cannot listen there, or another daemon does.
    """

    def __init__(
        self,
        path: Path,
        answers: Answers,
        status: Callable[[], dict[str, Any]],
        *,
        state_dir: Path,
        everyone: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.answers, self.status, self.everyone = answers, status, everyone
        self.state_dir, self._path = state_dir, path
        try:
            with suppress(OSError):
                path.parent.mkdir(mode=0o755)
            _make_room(path)
            with reached(path) as address:
                listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                listening.bind(address)
            path.chmod(_EVERYONE)
            self._inode = path.lstat().st_ino
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsError(f"daemon.pause_file: no socket at {path}: {reason}") from None
        super().__init__(listening, self._route, patience_s)

    def close(self) -> None:
        super().close()
        with suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()

    def owner_of(self, connection: socket.socket) -> int:
        return uid_of(connection) + 1  # 0 is nobody

    def fix_addr(self, _addr: Any) -> tuple[str, None]:
        return "localhost", None

    def _route(self, environ: Environ) -> Answer:
        """Of single jobs, of the plan, of the state; nothing else."""
        path = environ["PATH_INFO"]
        if path not in {_STATUS, _JOB, _PLAN}:
            return HTTPStatus.NOT_FOUND, _TEXT, b"not found\n"
        if path == _STATUS:
            found = self.status()
        else:
            asker = asker_of(environ["rltuned.socket"], everyone=self.everyone)
            found = _asked(self.answers, environ, asker)
        return _json({**found, "state_dir": str(self.state_dir)})


def uid_of(connection: socket.socket) -> int:
    """Of the process at the other end of a unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def asker_of(connection: socket.socket, *, everyone: bool = False) -> Asker:
    """The user at the other end of a unix socket; root and the daemon's own see all, or everyone
    does.
    """
    uid = uid_of(connection)
    name, is_admin = "", uid in {0, os.geteuid()}
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    return Asker(name, is_admin=is_admin, sees_all=is_admin or everyone)


def _make_room(path: Path) -> None:
    """Remove the socket of a daemon that is no more. Raises OSError: another one answers there, or
    something else lies there.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(0, "something else lies there")
    try:
        connected(path, 1.0).close()
    except ConnectionRefusedError:
        path.unlink()
    else:
        raise FileExistsError(0, "another daemon answers there")


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
        patience = _TIMEVAL.pack(int(patience_s), int(patience_s % 1 * 1e6))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        try:
            with reached(path) as address:
                made.connect(address)
        except BlockingIOError:
            raise TimeoutError(0, "too many ask at once") from None
        made.settimeout(patience_s)
        stack.pop_all()
    return made


class Connection(http.client.HTTPConnection):
    """HTTP to the daemon's socket."""

    def __init__(self, path: Path, patience_s: float) -> None:
        super().__init__("localhost", timeout=patience_s)
        self._path, self._patience_s = path, patience_s

    def connect(self) -> None:
        self.sock = connected(self._path, self._patience_s)
