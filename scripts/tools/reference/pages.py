"""docs/cli.md, docs/metrics.md and docs/configuration.md, from commands, registry and keys."""

import re
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from pydantic.fields import FieldInfo

from rltuned.daemon.metrics.cycle import Metrics
from rltuned.settings.reference import fields_of, header, tables, toml, type_text
from scripts.tools.reference.commands import Command, Parameter, commands

_INTRO = """\
# Commands

<!-- Made by `make docs`; a test fails when it is stale. -->

`rltuned COMMAND --help` prints the same, as does `man rltuned` on an installed machine.
[interfaces.md](interfaces.md) describes the [JSON documents](interfaces.md#json-for-programs)
and all [exit codes](interfaces.md#exit-codes).
"""


def cli() -> str:
    """The text of docs/cli.md."""
    found = commands()
    parts = [_INTRO, "\n| command | what it does |\n|---|---|\n"]
    parts += [f"| [{c.path}](#{c.path.replace(' ', '-')}) | {_cell(c.about[0])} |\n" for c in found]
    for top in found:
        for one in top.all():
            parts.extend(_section(one))
    return "".join(parts)


def _section(command: Command) -> Iterator[str]:
    depth = command.path.count(" ") + 1
    yield f"\n{'#' * depth} {command.path}\n\n"
    yield "\n\n".join(command.about) + "\n"
    if command.children:
        return
    yield f"\n```text\n{command.usage}\n```\n"
    rows = command.parameters
    if rows:
        yield "\n| | takes | default | |\n|---|---|---|---|\n"
        yield from (_row(row) for row in rows)


def _row(parameter: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.names)
    default = f"`{parameter.default}`" if parameter.default else ""
    if parameter.required:
        default = "required"
    kind = f"`{_cell(parameter.kind)}`" if parameter.kind else ""
    return f"| {names} | {kind} | {default} | {_cell(parameter.help)} |\n"


def _cell(text: str) -> str:
    return re.sub(r"\|", r"\\|", text)


_METRICS = """\
# Metrics

<!-- Made by `make docs`; a test fails when it is stale. -->

`/metrics` shows the state after the last cycle; a scrape never calls Slurm. Times are seconds, all
labels are bounded, no label names a job or a user, and every series exists from the start, those of
a partition from the first cycle on. An unknown value is NaN. From the first cycle on every series
has the label `cluster` besides: Slurm's ClusterName.

| metric | type | labels | meaning |
|---|---|---|---|
"""
_FREE = frozenset({"version", "name", "digest", "schema", "partition", "class"})
"""Labels whose values are not a fixed set."""


def metrics() -> str:
    """The text of docs/metrics.md."""
    registry = CollectorRegistry()
    shown = Metrics(registry)
    shown.loaded("fcfs", at=0.0, classes=["qos=any"])
    shown.show("any")
    return _METRICS + "".join(sorted(_family(family) for family in registry.collect()))


def _family(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels: dict[str, dict[str, None]] = {}
    for sample in family.samples:
        for key, value in sample.labels.items():
            if key != "le":
                labels.setdefault(key, {})[value] = None
    shown = "; ".join(
        f"`{key}`" if key in _FREE else f"`{key}`: " + ", ".join(f"`{value}`" for value in values)
        for key, values in labels.items()
    )
    return f"| `{name}` | {family.type} | {shown} | {family.documentation} |\n"


_KEYS = """\
# Configuration

<!-- Made by `make docs`; a test fails when it is stale. -->

One TOML file, `/etc/rltuned/rltuned.toml`, or the one named by `--config` or by the environment
variable `RLTUNED_CONFIG`. Everything has a safe default, so the file may be empty or missing.

- Order: defaults, then the file, then command-line flags. No environment variable changes a value.
- An unknown key, a wrong type or a value out of bounds stops the start with exit code 2 and names
  file, line and key. On SIGHUP such a file is refused and the old settings stay.
- A key of the release before that is gone has no effect. `rltuned config check` and the daemon's
  log warn of it, with file and line.
- The file must belong to root or to the user who runs rltuned, and no other user may write to it.
- `rltuned config check FILE` checks a file; `rltuned config show` prints every value in force and
  where it comes from. `deploy/rltuned.example.toml` has every key with its default.
- `[journal]`, `[http]`, `[log]`, `[ha]`, `daemon.state_dir`, `predictor.enabled` and
  `predictor.history_d` are read at start only; everything else also on SIGHUP.
"""


def configuration() -> str:
    """The text of docs/configuration.md."""
    parts = [_KEYS]
    for name, about, model in tables():
        parts.append(f"\n## {header(name)}\n\n{about}\n\n")
        parts.append("| key | type | default | what and why |\n|---|---|---|---|\n")
        parts.extend(_key(key, field) for key, field in fields_of(model).items())
    return "".join(parts)


def _key(key: str, field: FieldInfo) -> str:
    default = "absent" if field.default is None else f"`{toml(field.default)}`"
    why = (field.description or "").replace("|", "\\|")
    return f"| `{key}` | {type_text(field)} | {default} | {why} |\n"
