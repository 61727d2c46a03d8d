"""docs/cli.md, docs/metrics.md and docs/configuration.md, from commands, registry and keys."""

import re
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from pydantic.fields import FieldInfo

from rltuned.daemon.metrics import Metrics
from rltuned.settings.reference import fields_of, header, tables, toml, type_text
from scripts.tools.reference.commands import Command, commands

_INTRO = """\
# Commands

<!-- Made by `make docs`; a test fails when it is stale. -->

`rltuned COMMAND --help` and `man rltuned` explain each option. Not repeated: the exit codes 0 =
done, 1 = no usable answer, 2 = options, settings, a model or a file cannot be used
([all](interfaces.md#exit-codes); [JSON documents](interfaces.md#json-for-programs)).
"""
_CODES: Final = re.compile(r"Exit codes: (\d = .*?)\.(?= [A-Z]|$)")
_PLAIN: Final = re.compile(
    r"0 = |1 = .* no usable answer$|2 = .* cannot be (used|read|written)( at all)?$"
)
"""What the beginning of the page says of every command."""


def cli() -> str:
    """The text of docs/cli.md."""
    parts = [_INTRO]
    for top in commands():
        for one in top.all():
            parts.extend(_section(one))
    return "".join(parts)


def _section(command: Command) -> Iterator[str]:
    depth = command.path.count(" ") + 1
    yield f"\n{'#' * depth} {command.path}\n\n"
    yield "\n\n".join(filter(None, map(_about, command.about))) + "\n"
    if command.children:
        return
    words = command.usage.removeprefix(command.path).removesuffix("[OPTIONS]").split()
    words += [row.names[0] for row in command.parameters if not row.is_argument]
    if words:
        yield f"\nTakes {', '.join(f'`{word}`' for word in words)}\n"


def _about(text: str) -> str:
    """A paragraph without the exit codes that mean what they always mean."""

    def left(found: re.Match[str]) -> str:
        rows = [row for row in re.split(r"; (?=\d = )", found[1]) if not _PLAIN.match(row)]
        return f"Exit codes: {'; '.join(rows)}." if rows else ""

    return _CODES.sub(left, text).strip()


_METRICS = """\
# Metrics

<!-- Made by `make docs`; a test fails when it is stale. -->

`/metrics` shows the state after the last cycle; a scrape never calls Slurm. Times are seconds, no
label names a job or a user, and every series exists from the start, those of a partition from the
first cycle on. An unknown value is NaN. From the first cycle on every series has the label
`cluster` besides: Slurm's ClusterName. In brackets: the type where it is no gauge, and the labels
with their values. The `process_` series of prometheus_client come along.

"""
_FREE = frozenset({"version", "name", "digest", "schema", "partition", "class"})
"""Labels whose values are not a fixed set."""
_ELSEWHERE = {
    "mode": "`mode`: the [states](interfaces.md#states)",
    "feature": "`feature`: those of [ADR 0006](adr/0006-features.md)",
}
"""Labels whose values another page lists."""


def metrics() -> str:
    """The text of docs/metrics.md."""
    registry = CollectorRegistry()
    shown = Metrics(registry)
    shown.loaded("fcfs", classes=["qos=any"])
    shown.show("any")
    families = sorted(
        (one for one in registry.collect() if not one.name.startswith("process_")), key=_name
    )
    seen: set[str] = set()
    return _METRICS + "".join(_family(family, seen) for family in families)


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _family(family: Metric, seen: set[str]) -> str:
    """seen: the labels that rows above have listed with their values."""
    labels: dict[str, dict[str, None]] = {}
    for sample in family.samples:
        for key, value in sample.labels.items():
            if key != "le":
                labels.setdefault(key, {})[value] = None
    shown = [] if family.type == "gauge" else [family.type]
    for key, values in labels.items():
        text = f"`{key}`: " + ", ".join(f"`{value}`" for value in values)
        text = _ELSEWHERE.get(key, text)
        shown.append(f"`{key}`" if key in _FREE else f"`{key}` as above" if text in seen else text)
        seen.add(text)
    notes = f" ({'; '.join(shown)})" if shown else ""
    return f"- `{_name(family)}`{notes}: {family.documentation}\n"


_KEYS = """\
# Configuration

<!-- Made by `make docs`; a test fails when it is stale. -->

One TOML file, `/etc/rltuned/rltuned.toml`, or that of `--config` or of the environment variable
`RLTUNED_CONFIG`. It may be empty or missing. In brackets: type and default.

- Flags of a command come before the file. No environment variable changes a value.
- An unknown key, a wrong type or a value out of bounds stops the start with exit code 2 and names
  file, line and key. On SIGHUP such a file is refused and the old settings stay.
- CHANGELOG.md names keys that are gone, which count as unknown.
- The file must belong to root or to the user who runs rltuned; no other user may write to it.
- [`rltuned config`](cli.md#rltuned-config) writes, checks and shows settings.
- What is not marked "read at start only" is read again on SIGHUP;
  `daemon.state_dir` may not change.
"""


def configuration() -> str:
    """The text of docs/configuration.md."""
    parts = [_KEYS]
    for name, about, model in tables():
        parts.append(f"\n## {header(name)}\n\n{about}\n\n")
        parts.extend(_key(key, field) for key, field in fields_of(model).items())
    return "".join(parts)


def _key(key: str, field: FieldInfo) -> str:
    default = "absent" if field.default is None else f"`{toml(field.default)}`"
    return f"- `{key}` ({type_text(field)}; {default}). {field.description}\n"
