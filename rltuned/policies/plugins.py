"""Policies of other packages: `plugin:NAME` in the settings, found by entry point.

A package offers a function from a StateMatrix to delays, (n,) seconds, in its own pyproject.toml:

    [project.entry-points."rltuned.policies"]
    NAME = "package.module:function"

Its code runs inside the daemon, with the daemon's rights; the bounds on delays hold for it as for
every policy (core/order). docs/write-a-policy.md shows one.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.errors import ModelError, PolicyError, RltunedError
from rltuned.trusted import flaws_on

PLUGIN_PREFIX: Final = "plugin:"
GROUP: Final = "rltuned.policies"
_loaded: Final[dict[Path, str]] = {}
"""Digest by file, as imported: Python imports a module once."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A policy of another package. digest: of name, version and file, for the evidence."""

    name: str
    wish: Callable[[StateMatrix], FloatArray]
    digest: str

    def score(self, matrix: StateMatrix) -> FloatArray:
        return -self.delay_s(matrix)

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        """(n,) seconds, as the package gives them; core/order checks them. Raises PolicyError."""
        with _as(PolicyError, f"policy {self.name}"):
            return np.asarray(self.wish(_read_only(matrix)), dtype=np.float64)


def is_plugin(name: str) -> bool:
    """Whether a name stands for a policy of another package."""
    return name.startswith(PLUGIN_PREFIX)


def plugin_names() -> list[str]:
    """Those that are installed, as the settings give them."""
    return sorted({PLUGIN_PREFIX + entry.name for entry in entry_points(group=GROUP)})


def load_plugin(name: str) -> Plugin:
    """The policy of `plugin:NAME`. Raises ModelError: not exactly one, unfit, writable by another
    user, or its file has changed since this process imported it.
    """
    found = list(entry_points(group=GROUP, name=name.removeprefix(PLUGIN_PREFIX)))
    if len(found) != 1:
        makers = ", ".join(sorted(_maker(entry) for entry in found))
        there = f"several packages offer it: {makers}" if found else _known()
        raise ModelError(f"policy {name}: {there}")
    entry = found[0]
    with _as(ModelError, f"policy {name} ({entry.value})"):
        wish = entry.load()
        file = Path(inspect.getfile(wish))
        code = file.read_bytes()
        flaws = flaws_on(file)
    if flaws:
        raise ModelError(f"policy {name}: {flaws[0]}")
    digest = hashlib.sha256(_maker(entry).encode() + b"\0" + code).hexdigest()
    if _loaded.setdefault(file, digest) != digest:
        raise ModelError(f"policy {name}: {file} has changed since it was loaded; restart rltuned")
    return Plugin(name, wish, digest)


@contextmanager
def _as(kind: type[RltunedError], where: str) -> Iterator[None]:
    """Give every error of another package's code, which may fail in any way, one name."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise kind(f"{where}: {type(error).__name__}: {text}") from error


def _maker(entry: EntryPoint) -> str:
    return "" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _known() -> str:
    names = ", ".join(plugin_names())
    return (
        f"no installed package offers it; there are: {names}"
        if names
        else (f"no installed package offers a policy (entry point group {GROUP})")
    )


def _read_only(matrix: StateMatrix) -> StateMatrix:
    """The matrix with arrays that cannot be written: the bounds are worked out from it as well."""
    shown = copy(matrix)
    for field in fields(matrix):
        value = getattr(matrix, field.name)
        if isinstance(value, np.ndarray):
            view = value.view()
            view.flags.writeable = False
            object.__setattr__(shown, field.name, view)
    return shown
