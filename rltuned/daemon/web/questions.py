"""Questions of users of this machine over a unix socket: the kernel says who asks (SO_PEERCRED).

The socket lies beside the pause file, in the runtime directory of the service. What comes over TCP
is anonymous, whoever connects: a proxy there speaks for everybody.
"""

import http.client
import os
import pwd
import socket
import stat
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from rltuned.daemon.web.answers import Answers, Asker
from rltuned.daemon.web.server import MAX_CONNECTIONS, PATIENCE_S, Endpoint, Handler
from rltuned.errors import SettingsError

_CREDENTIALS: Final = struct.Struct("3i")
_TIMEVAL: Final = struct.Struct("@ll")
MOST_OF_ONE: Final = 2 * MAX_CONNECTIONS
"""A user who has as many threads, of connections that are cut or not, gets no further one."""
_STATUS: Final = "/status.json"
_PATHS: Final = frozenset({_STATUS, "/job.json", "/plan.json"})
_EVERYONE: Final = 0o666
"""May ask; what is answered depends on who asks."""


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
        made = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        # a socket with a timeout of Python's would not wait where others ask at once
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _patience(patience_s))
        try:
            with reached(path) as address:
                made.connect(address)
        except BlockingIOError:
            raise TimeoutError(0, "too many ask at once") from None
        made.settimeout(patience_s)
        stack.pop_all()
    return made


def _patience(seconds: float) -> bytes:
    """As the kernel takes it."""
    return _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6))


class Connection(http.client.HTTPConnection):
    """HTTP to the daemon's socket."""

    def __init__(self, path: Path, patience_s: float) -> None:
        super().__init__("localhost", timeout=patience_s)
        self._path, self._patience_s = path, patience_s

    def connect(self) -> None:
        self.sock = connected(self._path, self._patience_s)


def uid_of(connection: socket.socket) -> int:
    """Of the process at the other end of a unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)


def asker_of(connection: socket.socket) -> Asker:
    """The user at the other end of a unix socket; root and the daemon's own see all."""
    uid = uid_of(connection)
    name, is_admin = "", uid in {0, os.geteuid()}
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    return Asker(name, is_admin=is_admin, sees_all=is_admin)


class QuestionServer(Endpoint):
    """path: of the socket; its folder is made where that can be done. status: what `rltuned status`
    shows. state_dir: said in every answer, so that nobody takes the daemon of another state folder
    for his own. The rest: as Endpoint. Raises SettingsError: it cannot listen there, or another
    daemon does.
    """

    address_family = socket.AF_UNIX

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
        self.status, self.state_dir, self._path = status, state_dir, path
        self._answered: dict[int, int] = {}  # users of connections whose threads have not ended
        self._turns: defaultdict[tuple[int, str], threading.Lock] = defaultdict(threading.Lock)
        rest: dict[str, Any] = {"answers": answers, "everyone": everyone, "patience_s": patience_s}
        try:
            with suppress(OSError):
                path.parent.mkdir(mode=0o755)
            _make_room(path)
            super().__init__(("", 0), _Questions, **rest)
            self._inode = path.lstat().st_ino
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsError(f"daemon.pause_file: no socket at {path}: {reason}") from None

    def close(self) -> None:
        super().close()
        with suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()

    def process_request(self, request: Any, client_address: Any) -> None:
        owner = uid_of(request)
        with self._guard:
            is_many = sum(one == owner for one in self._answered.values()) >= MOST_OF_ONE
            if not is_many:
                self._answered[id(request)] = owner
        if is_many:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._answered.pop(id(request), None)
        super().shutdown_request(request)

    def owner_of(self, request: socket.socket) -> int:
        return uid_of(request)

    @contextmanager
    def turn(self, request: socket.socket, path: str) -> Iterator[bool]:
        """One answer from a path is made at a time for each user; False = its connection is cut by
        now.
        """
        with self._turns[uid_of(request), path]:
            yield id(request) in self.numbers()

    def server_bind(self) -> None:
        with reached(self._path) as address:
            self.socket.bind(address)
        self._path.chmod(_EVERYONE)


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


class _Questions(Handler):
    """Of single jobs, of the plan, of the state; nothing else."""

    server: QuestionServer

    def do_GET(self) -> None:  # noqa: N802 - the standard library's spelling
        path, _, query = self.path.partition("?")
        if path not in _PATHS:
            self.answer(HTTPStatus.NOT_FOUND, b"not found\n")
            return
        with self.server.turn(self.connection, path) as is_open:
            if is_open:
                self._answer(path, query)

    def _answer(self, path: str, query: str) -> None:
        if path == _STATUS:
            found = self.server.status()
        else:
            asker = asker_of(self.connection)
            sees_all = asker.sees_all or self.server.everyone
            found = self.asked(path, query, replace(asker, sees_all=sees_all))
        self.json({**found, "state_dir": str(self.server.state_dir)})

    do_HEAD = do_GET  # noqa: N815 - the standard library's spelling
