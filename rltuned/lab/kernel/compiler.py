"""The one door to numba: what is compiled, and how machine code is kept on disk."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from rltuned.durable import write_whole
from rltuned.lab.kernel.linking import link_once
from rltuned.lab.kernel.sources import Package

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

F = TypeVar("F", bound=Callable[..., Any])

_INNER: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""What Python would need to call a function takes a seventh of the time to compile it."""
_COUNTED: dict[str, Any] = {"_nrt": True}
"""Explicit: a function inherits it from the one that calls it first."""
_BORROWED: dict[str, Any] = {"_nrt": False}
_PACKAGE = Package()


def compiled(function: F) -> F:
    """Compile a function that only other compiled functions call."""
    return cast("F", numba.njit(**_INNER, **_COUNTED)(function))


def in_place(function: F) -> F:
    """Compile an inner function that makes no array and returns none to a function that does.

    It counts no references: it borrows what it is given. To count them, at each touch of an array
    inside a structure, took three quarters of a simulation.
    """
    return cast("F", numba.njit(**_INNER, **_BORROWED)(function))


def with_inner(function: F, **inner: Any) -> F:
    """A function of the core that calls others, with the compiled ones in their place."""
    names = function.__globals__ | inner
    return cast("F", FunctionType(function.__code__, names, function.__name__))


def entry(function: F) -> F:
    """Compile a function that Python calls, and keep the machine code on disk.

    numba looks for changes only in the file of the function itself, yet the code of all that it
    calls is kept with it. So the digest of what it is made of is in the kept file's name: code of
    other sources, an older release's too, is never opened.
    """
    own = Path(function.__code__.co_filename).read_bytes()
    uses = _PACKAGE.sources_of(function.__module__, function.__name__)
    function.__qualname__ += f".{hashlib.sha256(uses.encode() + own).hexdigest()[:12]}"
    try:
        made = numba.njit(cache=True, nogil=True)(function)
        _take_over(made, Path(function.__code__.co_filename))
    except RuntimeError:  # nowhere to keep it: neither beside the sources nor in a home folder
        made = numba.njit(nogil=True)(function)
    link_once(made)
    return cast("F", made)


def _take_over(made: Any, source: Path) -> None:
    """Copy what the installation compiled beside the sources to where this user may write.

    numba keeps and looks up machine code in one writable folder. The index goes last: a file
    without its index is never opened.
    """
    kept, installed = Path(made.stats.cache_path), source.parent / "__pycache__"
    for suffix in () if kept == installed else ("nbc", "nbi"):
        for file in installed.glob(f"{source.stem}.{made.py_func.__qualname__}-*.{suffix}"):
            if not (kept / file.name).exists():
                write_whole(kept / file.name, file.read_bytes(), 0o600)


@compiled
def ascending(values: FloatArray) -> IntArray:
    """Places by value, equal ones in their order; one function, as each use would be compiled."""
    order: IntArray = np.argsort(values, kind="mergesort")
    return order
