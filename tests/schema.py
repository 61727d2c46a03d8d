"""Whether what was read with Grafana's published types holds values of those types.

The package only reads: a text where its types say a number stays a text. So every value is compared
with the annotation of the attribute that holds it.
"""

import types
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

PACKAGE = "grafana_foundation_sdk."
_NUMBERS = {float: (int, float), int: (int,)}


def misfits(value: Any, where: str = "dashboard") -> Iterator[str]:
    """One line for every attribute, at any depth, whose value is not of its type."""
    for name, annotation in get_type_hints(type(value)).items():
        yield from _against(getattr(value, name), annotation, f"{where}.{name}")


def _against(value: Any, annotation: Any, where: str) -> Iterator[str]:
    origin, inside = get_origin(annotation), get_args(annotation)
    if isinstance(value, dict) and hasattr(annotation, "from_json"):
        value = annotation.from_json(value)  # the package leaves the links of panels as they are
    if origin in {Union, types.UnionType}:
        yield from _one_of(value, inside, where)
    elif origin in {list, dict} and isinstance(value, origin):
        yield from _each(value, inside, where)
    elif not (value in inside if origin is Literal else _is(value, annotation)):
        yield _line(value, annotation, where)
    elif type(value).__module__.startswith(PACKAGE) and not isinstance(value, Enum):
        yield from misfits(value, where)


def _each(value: Any, inside: tuple[Any, ...], where: str) -> Iterator[str]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        yield from _against(item, inside[-1], f"{where}[{key}]")


def _one_of(value: Any, choices: tuple[Any, ...], where: str) -> Iterator[str]:
    """Nothing when it fits one of them, else what is wrong by the choice that fits best."""
    found = [list(_against(value, choice, where)) for choice in choices]
    if all(found):
        # the deepest complaint is about the choice that was meant
        yield from max(found, key=lambda lines: len(lines[0].partition(":")[0]))


def _is(value: Any, annotation: Any) -> bool:
    if annotation is Any or annotation is object:
        return True
    if annotation is type(None):
        return value is None
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return value in {member.value for member in annotation} or isinstance(value, annotation)
    if get_origin(annotation) is not None:
        return False  # a list or a mapping that is none
    if annotation in _NUMBERS:
        return isinstance(value, _NUMBERS[annotation]) and not isinstance(value, bool)
    return isinstance(value, annotation)


def _line(value: Any, annotation: Any, where: str) -> str:
    return f"{where}: {value!r} is no {getattr(annotation, '__name__', annotation)}"
