"""The engine's state as flat arrays, and the one door to the compiler."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

F = TypeVar("F", bound=Callable[..., Any])


_INNER: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""What Python would need to call a function takes a seventh of the time to compile it."""


def compiled(function: F) -> F:
    """Compile a function that only other compiled functions call."""
    return cast("F", numba.njit(**_INNER)(function))


def entry(function: F) -> F:
    """Compile a function that Python calls, and keep the machine code on disk.

    numba looks for changes only in the file of the function itself, yet the code of all that it
    calls is kept with it. So an entry must be a closure over `sources()`: closed-over values are
    part of the key under which numba keeps it. The digest is in the file's name as well: numba
    unpickles an index before it looks at its age, which fails when a class in it was renamed.
    """
    closed_over = (cell.cell_contents for cell in function.__closure__ or ())
    digest = next(value for value in closed_over if isinstance(value, str))
    function.__qualname__ += f".{digest[:12]}"
    try:
        made = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to keep it: neither beside the sources nor in a home folder
        made = numba.njit(nogil=True)(function)
    return cast("F", made)


def sources() -> str:
    """Digest of the engine's source files that hold compiled functions."""
    return digest_of(Path(__file__).parent)


def digest_of(folder: Path) -> str:
    """Digest of the source files in a folder that hold compiled functions."""
    whole = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        data = path.read_bytes()
        if b"@compiled" in data or b"= entry(" in data or b"return entry(" in data:
            whole.update(data)
    return whole.hexdigest()


@compiled
def ascending(values: FloatArray) -> IntArray:
    """Places by value, equal ones in their order; one function, as each use would be compiled."""
    order: IntArray = np.argsort(values, kind="mergesort")
    return order


class Hardware(NamedTuple):
    """What never changes. Shapes: N nodes in name order, P partitions, T GPU types.

    row: GPU type of each node, the first of several; T = it has no GPUs. near: partitions that
    share a node. gpus: of all types together; of_type: of each, row T always 0.
    """

    row: IntArray  # (N,)
    gpus: IntArray  # (N,)
    of_type: IntArray  # (T+1, N)
    cpus: IntArray  # (N,)
    mem_mib: IntArray  # (N,)
    member: BoolArray  # (P, N)
    near: BoolArray  # (P, P)


class Free(NamedTuple):
    """What is free, now or at a shadow time; each (N,), of_type (T+1, N)."""

    gpus: IntArray
    of_type: IntArray
    cpus: IntArray
    mem_mib: IntArray


class Shapes(NamedTuple):
    """The different requests of a trace; each (S,) but accepts.

    width: nodes. accepts: (S, T+1) GPU types on which so many nodes carry it. low, larger: GPUs
    per node, and on how many nodes one more. cpus_each, mem_each: the largest share.
    """

    gpus: IntArray
    cpus: IntArray
    mem_mib: IntArray
    width: IntArray
    accepts: BoolArray
    low: IntArray
    larger: IntArray
    cpus_each: IntArray
    mem_each: IntArray
    exclusive: BoolArray
    partition: IntArray


class Jobs(NamedTuple):
    """The trace, in submit order; each (n,). runs_s: what it will run, cut at its limit.

    offset: where its shares begin in Shares.
    """

    submit_s: FloatArray
    runs_s: FloatArray
    limit_s: FloatArray
    shape: IntArray
    offset: IntArray


class Shares(NamedTuple):
    """What every job took, one row per node of every job. row: GPU type; -1 = all of the node's."""

    node: IntArray
    row: IntArray
    gpus: IntArray
    cpus: IntArray
    mem_mib: IntArray
