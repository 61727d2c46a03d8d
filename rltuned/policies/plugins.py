"""Policies of other packages: `plugin:NAME` in the settings, found by entry point.

A package offers a function from a StateMatrix to own seconds (n,), or to a pair of those and places
(n,), as core/order.Wish has them; without places they are by the own seconds. It names the function
in its own pyproject.toml:

    [project.entry-points."rltuned.policies"]
    NAME = "package.module:function"

Its code runs inside the daemon, with the daemon's rights; the bounds on delays hold for it as for
every policy (core/order). docs/write-a-policy.md shows one.
"""

import difflib
import hashlib
import inspect
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.order import Wish
from rltuned.core.pools import Pools
from rltuned.errors import ModelError, PolicyError, RltunedError
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.policies.shelf import MODEL_PREFIX, MODELS_DIR, bundle_at
from rltuned.trusted import flaws_on

Table = TypeVar("Table", StateMatrix, Pools)
PLUGIN_PREFIX: Final = "plugin:"
GROUP: Final = "rltuned.policies"
_loaded: Final[dict[Path, str]] = {}
"""Digest by file, as imported: Python imports a module once."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A policy of another package. digest: of name, version and file, for the evidence."""

    name: str
    ask: Callable[[StateMatrix], object]
    digest: str

    @property
    def trust(self) -> None:
        """There is nothing that it corrects."""

    def score(self, matrix: StateMatrix) -> FloatArray:
        return -self.wish(matrix).own_s

    def wish(self, matrix: StateMatrix) -> Wish:
        """As the package gives it; core/order checks it. Raises PolicyError."""
        with _as(PolicyError, f"policy {self.name}"):
            found = self.ask(_copied(matrix))
            if isinstance(found, tuple):
                own_s, place = map(_real, found)
                return Wish(own_s, place)
            own_s = _real(found)
            if own_s.shape != (len(matrix),):
                return Wish(own_s, own_s)  # refused by its shape
            return Wish(own_s, matrix.pools.places(own_s))


def _real(part: object) -> FloatArray:
    found = np.asarray(part)
    if np.iscomplexobj(found):
        raise TypeError("complex numbers")
    return found.astype(np.float64)


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
    except BaseException as error:  # nothing that it raises may end the daemon
        by_hand = isinstance(error, KeyboardInterrupt)
        if by_hand and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise  # Ctrl-C at a command; the daemon has a handler of its own
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


def _copied(matrix: StateMatrix) -> StateMatrix:
    """A copy of the matrix that cannot be written by mistake: the bounds are worked out from the
    original, whatever the package does to its own.
    """
    return _without_writing(replace(matrix, pools=_without_writing(matrix.pools)))


def _without_writing(table: Table) -> Table:
    changed: dict[str, Any] = {}
    for field in fields(table):
        value = getattr(table, field.name)
        if isinstance(value, np.ndarray):
            changed[field.name] = value.copy()
            changed[field.name].flags.writeable = False
    return replace(table, **changed)


# A policy by its name: a rule, `model:NAME` or `model:FOLDER`, `plugin:NAME`.


def policy_named(
    name: str, models_dir: Path = MODELS_DIR, trust: float = 1.0
) -> Baseline | Actor | Plugin:
    """The policy of a name; a model's is its folder or in models_dir. trust: of a network, see
    load_actor. Raises ModelError.
    """
    if name in BASELINES:
        return BASELINES[name]
    if is_plugin(name):
        return load_plugin(name)
    if name.startswith(MODEL_PREFIX):
        return load_actor(bundle_at(name, models_dir), trust)
    raise ModelError(f"no policy {name!r}; {hint(name)}")


def hint(name: str, *also: str) -> str:
    """What may have been meant by a name that no policy has; also: further names."""
    known = [*BASELINES, f"{MODEL_PREFIX}NAME", *plugin_names(), *also]
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
