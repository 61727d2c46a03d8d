"""The one door to numba: what is compiled, and how machine code is kept on disk."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numpy.typing import NDArray

from rltuned import __version__
from rltuned.files import write_whole

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE: Final = Path(__file__).parents[2]
_SOURCES: Final = ("core", "domain", "lab/kernel", "policies")
"""Folders of the package that hold what a compiled function may use."""
_Library: Any = JITCodeLibrary
_Pipeline: Any = Compiler


class _InnerCode(_Library):  # type: ignore[misc]
    """The code of an inner function: it stays as it is, for the functions that Python calls.

    By itself numba optimises every function together with all that it calls, and again in each that
    calls it: to compile `play` then takes 147 s of a processor instead of 54 s.
    """

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        self._finalize_dynamic_globals()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """With all that it calls, each function once."""
        whole = super()._get_module_for_linking().clone()
        linked, to_link = {self}, [*self._linking_libraries]
        while to_link:
            library = to_link.pop()
            if library not in linked:
                linked.add(library)
                if isinstance(library, _InnerCode):
                    to_link += library._linking_libraries
                whole.link_in(_Library._get_module_for_linking(library), preserve=True)
        return whole

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, _name: str, _env: Any) -> None:
        """What would be set for Python: an inner function has no address to set it at."""


class _InnerPipeline(_Pipeline):  # type: ignore[misc]
    """numba's own, into such a library."""

    def define_pipelines(self) -> Any:
        state = self.state
        state.library = _InnerCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


_INNER: dict[str, Any] = {
    "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
    "pipeline_class": _InnerPipeline,
}  # fmt: skip
"""What Python would need to call a function takes a seventh of the time to compile it."""
_COUNTED: dict[str, Any] = {"_nrt": True}
"""Explicit: a function inherits it from the one that calls it first."""
_BORROWED: dict[str, Any] = {"_nrt": False}


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
    calls is kept with it. So a digest of the sources is in the kept file's name: code of other
    sources, an older release's too, is never opened.
    """
    source = Path(function.__code__.co_filename)
    own = hashlib.sha256(digest().encode() + source.read_bytes())
    function.__qualname__ += f".{own.hexdigest()[:12]}"
    try:
        made = numba.njit(cache=True, nogil=True)(function)
        _take_over(made, source)
    except RuntimeError:  # nowhere to keep it: neither beside the sources nor in a home folder
        made = numba.njit(nogil=True)(function)
    return cast("F", made)


@cache
def digest() -> str:
    """Of the release and of all that compiled functions may use."""
    found = hashlib.sha256(__version__.encode())
    for folder in _SOURCES:
        for file in sorted((_PACKAGE / folder).glob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()


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
