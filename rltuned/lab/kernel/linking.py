"""Optimise machine code once, where it is complete: in the functions that Python calls.

numba optimises and generates the code of every inner function together with all that it calls, and
does so again in each function that calls it. Nothing calls an inner function but compiled code, so
while an entry is compiled its inner functions stay as they are, and the entry links each of them
once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock

_Library: Any = JITCodeLibrary


class _InnerCode(_Library):  # type: ignore[misc]
    """The code of an inner function, without machine code and without the code that it calls."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        self._finalize_dynamic_globals()
        self._finalized = True

    def own_module(self) -> Any:
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        """For a function that is not an entry: with the code that it calls."""
        whole = self.own_module().clone()
        _link(self._linking_libraries, whole)
        return whole


class _EntryCode(_Library):  # type: ignore[misc]
    """The code of a function that Python calls, with everything that it calls."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        _link(self._linking_libraries, self._final_module)
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        self._linking_libraries = []
        super().finalize()


def _link(libraries: list[Any], module: Any) -> None:
    """Link these libraries and all that their inner ones call into a module, each once."""
    linked: set[Any] = set()
    to_link = list(libraries)
    while to_link:
        library = to_link.pop()
        if library in linked:
            continue
        linked.add(library)
        if isinstance(library, _InnerCode):
            to_link += library._linking_libraries
            module.link_in(library.own_module(), preserve=True)
        else:
            module.link_in(library._get_module_for_linking(), preserve=True)


def link_once(dispatcher: Any) -> None:
    """Let all that is compiled for this entry but itself stay without machine code."""
    compile_all: Callable[..., Any] = dispatcher._compiler.compile
    name = dispatcher.py_func.__qualname__

    def compile_once(args: Any, return_type: Any) -> Any:
        with _linking(dispatcher.targetctx.codegen(), name):
            return compile_all(args, return_type)

    dispatcher._compiler.compile = compile_once


@contextmanager
def _linking(codegen: Any, entry: str) -> Iterator[None]:
    def create_library(name: str, **kwargs: Any) -> Any:
        return (_EntryCode if name == entry else _InnerCode)(codegen, name, **kwargs)

    def set_env(name: str, env: Any) -> None:
        if codegen._engine.is_symbol_defined(name):  # an inner function has no address to set it at
            before[1](name, env)

    with global_compiler_lock:
        before = codegen.create_library, codegen.set_env
        codegen.create_library, codegen.set_env = create_library, set_env
        try:
            yield
        finally:
            codegen.create_library, codegen.set_env = before
