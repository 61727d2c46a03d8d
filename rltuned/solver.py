"""The one door to a solver: a child process with a time limit that holds and nothing on disk.

Why not through PuLP's own `solve`: CBC looks at its time limit only between steps (presolve can
take minutes past it), PuLP leaves its files in the temporary folder when it is killed, and the
child goes on without its parent. Here the child

- gets the program and leaves its answer in anonymous memory files, which end with the processes;
- runs in a session of its own, ended as a whole at the wall-clock limit;
- may use only so much address space, and so much CPU time even when no one is left to end it;
- is ended by the kernel when the thread that started it goes away (`setpriv --pdeathsig`).
"""

import contextlib
import math
import os
import re
import resource
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rltuned import children
from rltuned.core.milp import Budget, Solver
from rltuned.errors import SolverError

if TYPE_CHECKING:  # most commands name a solver and never solve
    import pulp

_LINE: Final = re.compile(r"\s*\d+\s+(\w+)\s+([-+0-9.eE]+)(?:\s+[-+0-9.eE]+)?")
_ANSWER_LIMIT: Final = 8 * 1024 * 1024
_TAIL: Final = 2_000
_PIECE: Final = 65_536
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cbc:
    """Solves programs with CBC in a child process. program: None = the one that comes with PuLP."""

    program: Path | None = None

    def __call__(self, problem: "pulp.LpProblem", budget: Budget) -> Mapping[str, float]:
        """Values that are not zero, at the proven optimum. Raises SolverError: no usable answer."""
        deadline = time.monotonic() + budget.wall_s
        model, answer = os.memfd_create("rltuned-program"), os.memfd_create("rltuned-answer")
        try:
            problem.writeMPS(f"/proc/self/fd/{model}")
            self._run(model, answer, budget, deadline)
            text = os.pread(answer, _ANSWER_LIMIT + 1, 0)
        finally:
            os.close(model)
            os.close(answer)
        return read_answer(text)

    def _run(self, model: int, answer: int, budget: Budget, deadline: float) -> None:
        from pulp.apis.coin_api import PULP_CBC_CMD  # noqa: PLC0415

        # Preprocessing and heuristics cost many times what these small programs take, and probing
        # more than it saves. And no "-threads 1": that is a worker thread beside the main one, and
        # now and then the one sleeps 10 s before it sees that the other is done (10 of 1 500
        # solves).
        argv = [
            str(self.program or PULP_CBC_CMD.pulp_cbc_path), f"/proc/self/fd/{model}", "-max",
            "-sec", f"{budget.wall_s:g}", "-timeMode", "elapsed", "-ratio", "0",
            "-preprocess", "off", "-heuristicsOnOff", "off",
            "-probingCuts", "off", "-branch", "-solution", f"/proc/self/fd/{answer}",
        ]  # fmt: skip
        keeper = shutil.which("setpriv")
        if keeper is not None:
            argv = [keeper, "--pdeathsig", "KILL", "--", *argv]
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(model, answer),
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise SolverError(f"cbc cannot be started: {error}") from error
        output, in_time = b"", False
        try:
            _bound(child.pid, budget)
            output, in_time = _listen(child, deadline)
        finally:
            code = children.end(child, deadline, broken=not in_time)
        if code is None:
            raise SolverError(f"cbc took longer than {budget.wall_s:g} s")
        if code != 0:
            words = output.decode("utf-8", "replace").split()
            raise SolverError(f"cbc ended with {code}: {' '.join(words)[-200:]}")


def probe(solver: Solver, budget: Budget) -> None:
    """Solve a program whose answer is known. Raises SolverError: too slow, or another answer."""
    import pulp  # noqa: PLC0415

    problem = pulp.LpProblem("probe", pulp.LpMaximize)
    one, other = (problem.add_variable(name, cat=pulp.LpBinary) for name in ("x0", "x1"))
    problem += 2 * one + 3 * other
    problem += one + other <= 1
    values = solver(problem, budget)
    found = {name: round(values.get(name, 0.0)) for name in ("x0", "x1")}
    if found != {"x0": 0, "x1": 1}:
        raise SolverError(f"the solver answers {found} where x1 alone is right")


def read_answer(text: bytes) -> dict[str, float]:
    """The values in CBC's solution file. Raises SolverError: not proven optimal, or unreadable."""
    if len(text) > _ANSWER_LIMIT:
        raise SolverError(f"cbc answered more than {_ANSWER_LIMIT} bytes")
    try:
        status, *lines = text.decode("ascii").splitlines()
    except ValueError as error:  # no line, or not ASCII
        raise SolverError("cbc left no readable answer") from error
    if not status.startswith("Optimal") or "gap" in status:
        raise SolverError(f"cbc found no proven optimum: {status[:80]!r}")
    values = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        number = _number(match[2]) if match else math.nan
        if match is None or not math.isfinite(number):
            raise SolverError(f"cbc answered {line[:80]!r}")
        values[match[1]] = number
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"LC_ALL": "C", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _bound(pid: int, budget: Budget) -> None:
    """Memory and CPU limits; a child that has ended already needs none."""
    memory = budget.memory_mib * _MIB
    seconds = math.ceil(budget.wall_s) + 1
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_AS, (memory, memory))
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _listen(child: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """The end of its output, and whether it closed it in time."""
    if child.stdout is None:
        return b"", False
    pipe, tail = child.stdout.fileno(), b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    while (left_s := deadline - time.monotonic()) > 0:
        if not poll.poll(math.ceil(left_s * 1_000)):
            continue
        piece = os.read(pipe, _PIECE)
        if not piece:
            return tail, True
        tail = (tail + piece)[-_TAIL:]
    return tail, False
