"""How checks are written down: questions with answers that hold by facts, found out when asked."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from rltuned.errors import RltunedError


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


OK, WARN, FAIL = Status


class Check(NamedTuple):
    """One line of `rltuned check`; remedy says what to do about a warn or fail."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


class Answer(NamedTuple):
    """One answer to a question. holds: tells it by the facts, as something that is true. says and
    remedy: `{found}` is that, `{NAME}` a fact; says "" = there is nothing to say.
    """

    status: Status
    holds: Callable[[Any], object]
    says: str
    remedy: str = ""


class Question(NamedTuple):
    """A row of the table: its answer is the first of `states` that holds, if one does. key, fits:
    what `rltuned config init` sets by it, to a value (None = a comment), and why.
    """

    name: str
    asks: str
    states: tuple[Answer, ...]
    key: str = ""
    fits: Callable[[Any], tuple[object, str] | None] = lambda _: None


class Facts(dict[str, Any]):
    """Facts that are found out when first asked for, by `probes`; an error is a fact too. What no
    probe knows is a line of Slurm's configuration, "" = it has none of the name.
    """

    def __init__(self, probes: Mapping[str, Callable[[Any], object]], **known: object) -> None:
        super().__init__(known)
        self._probes = probes

    def __missing__(self, name: str) -> Any:
        try:
            known = name in self._probes
            self[name] = self._probes[name](self) if known else self["config"].get(name, "")
        except RltunedError as error:
            self[name] = error
        return self[name]


def answers(table: Iterable[Question], facts: Facts) -> Iterator[Check]:
    """What the facts say to each question."""
    for row in table:
        for status, holds, says, remedy in row.states:
            if found := holds(facts):
                named = ChainMap({"found": found}, facts)
                if says:
                    yield Check(row.name, status, says.format_map(named), remedy.format_map(named))
                break


def wrong(fact: object) -> tuple[str, str] | None:
    """Of an error: what it says, and the command that fixes it ("" = it names none)."""
    what, _, fix = str(fact).partition("; fix with: ")
    return (what, fix) if isinstance(fact, Exception) else None


def otherwise(_: object) -> bool:
    """Of the last state of a question: none before it held."""
    return True
