"""The part of the journal that outlives the process: named values, read and changed whole."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from rltuned.errors import JournalError

T = TypeVar("T")


class Recall(Protocol):
    """The named values, to read."""

    def recall(self, name: str) -> object: ...


class Memory(Recall, Protocol):
    """The same, to read and to change."""

    def alter(self, name: str, change: Callable[[object], object], at: float) -> None: ...


def read_kept(adapter: TypeAdapter[dict[str, T]], kept: object, what: str) -> dict[str, T]:
    """The value that the journal keeps under a name; None, nothing kept yet, is an empty one.

    Raises:
        JournalError: it is not of that type; names what it is and the first wrong field.
    """
    try:
        return adapter.validate_python({} if kept is None else kept)
    except ValidationError as error:
        raise JournalError(f"{what}: {first_flaw(error)}") from None


def first_flaw(error: ValidationError) -> str:
    """The first wrong field and what is wrong with it."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
