"""CBC in a child process, with a time limit that holds and nothing on disk.

Why not through PuLP's own `solve`: CBC looks at its time limit only between steps (presolve can
take minutes past it), PuLP leaves its files in the temporary folder when it is killed, and the
child goes on without its parent.
"""

import math
import os
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rltuned.core.milp import Budget, Solver
from rltuned.errors import SolverError
from rltuned.run import run

if TYPE_CHECKING:  # most commands name a solver and never solve
    import pulp

_LINE: Final = re.compile(r"\s*\d+\s+(\w+)\s+([-+0-9.eE]+)(?:\s+[-+0-9.eE]+)?")
_MOST_BYTES: Final = 8 * 1024 * 1024
"""Of its answer, and of what it says."""
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cbc:
    """Solves programs with CBC in a child process. program: None = the one that comes with PuLP."""

    program: Path | None = None

    def __call__(self, problem: "pulp.LpProblem", budget: Budget) -> Mapping[str, float]:
        """Values that are not zero, at the proven optimum. Raises SolverError: no usable answer."""
        answer = os.memfd_create("rltuned-answer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            problem.writeMPS(f"/proc/self/fd/{answer}")
            program = os.pread(answer, os.fstat(answer).st_size, 0)
            os.truncate(answer, 0)
            self._run(program, answer, budget)
            return read_answer(os.pread(answer, _MOST_BYTES, 0))
        finally:
            os.close(answer)

    def _run(self, program: bytes, answer: int, budget: Budget) -> None:
        from pulp.apis.coin_api import PULP_CBC_CMD  # noqa: PLC0415

        # Preprocessing and heuristics cost many times what these small programs take, and probing
        # more than it saves. And no "-threads 1": that is a worker thread beside the main one, and
        # now and then the one sleeps 10 s before it sees that the other is done (10 of 1 500
        # solves).
        argv = [
            str(self.program or PULP_CBC_CMD.pulp_cbc_path), "/proc/self/fd/0", "-max",
            "-sec", f"{budget.wall_s:g}", "-timeMode", "elapsed", "-ratio", "0",
            "-preprocess", "off", "-heuristicsOnOff", "off",
            "-probingCuts", "off", "-branch", "-solution", f"/proc/self/fd/{answer}",
        ]  # fmt: skip
        env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        env |= {"LC_ALL": "C", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        limits = {
            resource.RLIMIT_AS: budget.memory_mib * _MIB,
            resource.RLIMIT_CPU: math.ceil(budget.wall_s) + 1,
            resource.RLIMIT_CORE: 0,
        }
        try:
            call = run(
                argv,
                env,
                budget.wall_s,
                _MOST_BYTES,
                name="cbc",
                feed=program,
                files=(answer,),
                limits=limits,
                dies_with_us=True,
            )
        except OSError as error:
            raise SolverError(f"cbc cannot be started: {error}") from error
        if call.failure:
            raise SolverError(call.failure)
        if not call.ok:
            words = (call.stdout + call.stderr).split()
            raise SolverError(f"cbc ended with {call.exit_code}: {' '.join(words)[-200:]}")


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
    try:
        status, *lines = text.decode("ascii").splitlines()
    except ValueError as error:  # no line, or not ASCII
        raise SolverError("cbc left no readable answer") from error
    if not status.startswith("Optimal") or "gap" in status:
        raise SolverError(f"cbc found no proven optimum: {status[:80]!r}")
    values = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        try:
            number = float(match[2]) if match else math.nan
        except ValueError:
            number = math.nan
        if match is None or not math.isfinite(number):
            raise SolverError(f"cbc answered {line[:80]!r}")
        values[match[1]] = number
    return values
