"""A settings file with some keys of it, each under its own description: a start for a site."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic.fields import FieldInfo

from rltuned.settings.reference import tables, toml, type_text

_WIDTH = 96


@dataclass(frozen=True, slots=True)
class Line:
    """A key of the file to be.

    Attributes:
        key: table and key, "scope.sla_partitions".
        value: what it is to say; of a comment, what it could say. None = the default.
        active: False = the line is a comment, and the default holds.
        why: what the cluster has to do with it, after the key's own description.
    """

    key: str
    value: object = None
    active: bool = False
    why: str = ""

    @property
    def table(self) -> str:
        return self.key.partition(".")[0]


def draft(head: Sequence[str], lines: Sequence[Line]) -> str:
    """The text of the file: a head of comments, then the keys by table, in the order given.

    Raises:
        KeyError: a line names no key of the settings.
    """
    known = {
        f"{name}.{key}": (info, field)
        for name, info, model in tables()
        for key, field in model.model_fields.items()
    }
    parts = [f"# {' '.join(line.splitlines())}".rstrip() for line in head]
    for name, group in groupby(lines, key=lambda line: line.table):
        members = list(group)
        about = known[members[0].key][0].description
        parts += ["", f"# {about}", f"[{name}]"]
        for line in members:
            parts += _key(line, known[line.key][1])
    return "\n".join(parts) + "\n"


def _key(line: Line, field: FieldInfo) -> Iterator[str]:
    for note in (f"{field.description} ({type_text(field)})", line.why):
        yield from (f"# {row}" for row in textwrap.wrap(note, _WIDTH, break_on_hyphens=False))
    value = field.default if line.value is None else line.value
    text = f"{line.key.partition('.')[2]} ="
    if value is not None:
        text += f" {toml(value)}"
    yield text if line.active else f"# {text}"
