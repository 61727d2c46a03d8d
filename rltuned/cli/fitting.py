"""What `rltuned config init` makes of a cluster: comments that show it, keys that fit it.

Nothing is guessed. A key is active where Slurm itself says what it must be; what only people know,
above all which partitions were promised to a group, stays a comment.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rltuned.cli.flags import printable
from rltuned.settings.reference import KeyLine, draft
from rltuned.slurm.site import Priorities, RateLimit

STATE_DIR = Path("/var/lib/rltuned")
RUN_DIR = Path("/run/rltuned")
_HOME = Path("/etc/rltuned")
_SERVICE = "rltuned"
_CYCLE_REQUESTS = 11
"""Of a cycle besides its changes: 6 to look, 2 for the configuration, 3 to read back
(docs/operations.md, "Load on slurmctld")."""


@dataclass(frozen=True, slots=True)
class Found:
    """A cluster that answered. partitions: their names. controllers: how many slurmctld. limit:
    requests that it lets a user send; None = any number.
    """

    cluster: str
    release: str
    partitions: tuple[str, ...]
    priorities: Priorities
    controllers: int = 1
    limit: RateLimit | None = None


def fitted(found: Found | None, path: Path | None, keys: Mapping[str, object], written: str) -> str:
    """The text of the file. found: None = it fits any cluster. path: None = standard output. keys:
    dotted key -> value, written as they are. written: by whom and when.
    """
    head = [f"rltuned.toml, {written}.", *_NOTES]
    if found is None:
        head += ["", "No cluster was asked (--offline)."]
    else:
        head += ["", f"Cluster {printable(found.cluster)}, Slurm {printable(found.release)}."]
    lines = [*_daemon(path), *_keys(found), *_http(path)]
    lines = [_as_wished(line, keys) for line in lines]
    missing = [KeyLine(k, v, active=True) for k, v in keys.items() if k not in _names(lines)]
    order = list(dict.fromkeys(line.table for line in (*lines, *missing)))
    both = sorted((*lines, *missing), key=lambda line: order.index(line.table))
    return draft(head, both)


_NOTES = (
    "Keys that are not here have their defaults: `man rltuned.toml`, docs/configuration.md.",
    "Check it with `rltuned config check FILE`; a running daemon takes it over on SIGHUP.",
)


def _names(lines: Sequence[KeyLine]) -> set[str]:
    return {line.key for line in lines}


def _as_wished(line: KeyLine, keys: Mapping[str, object]) -> KeyLine:
    if line.key not in keys:
        return line
    return KeyLine(line.key, keys[line.key], active=True, why=line.why)


# -- the keys -----------------------------------------------------------------------------------


def _instance(path: Path | None) -> str:
    """NAME of /etc/rltuned/NAME.toml, which rltuned@NAME reads; empty = the service itself."""
    if path is None or path.parent != _HOME or path.stem == _SERVICE or path.suffix != ".toml":
        return ""
    return path.stem


def _daemon(path: Path | None) -> Iterator[KeyLine]:
    name = _instance(path)
    if not name:
        return
    why = f"For rltuned@{name}, a folder of its own."
    yield KeyLine("daemon.state_dir", STATE_DIR / name, active=True, why=why)
    yield KeyLine("daemon.pause_file", RUN_DIR / name / "PAUSE", active=True)


def _http(path: Path | None) -> Iterator[KeyLine]:
    name = _instance(path)
    if name:
        yield KeyLine("http.port", why="Each daemon of this machine needs a port of its own.")


def _keys(found: Found | None) -> Iterator[KeyLine]:
    partitions = [*found.partitions] if found else []
    named = f" Here: {', '.join(map(printable, partitions))}." if partitions else ""
    yield KeyLine("policy.name")
    yield KeyLine(
        "scope.sla_partitions",
        why="Slurm does not say which partitions were promised to a group: name them before the "
        f"stage is canary or full.{named}",
    )
    yield KeyLine("scope.partitions", partitions or None)
    for who in ("users", "accounts", "qos"):
        yield KeyLine(f"scope.excluded_{who}")
    yield from _limits(found)
    yield KeyLine("ladder.stage", "observe", active=True)
    if found and found.controllers > 1:
        why = f"{found.controllers} slurmctld here: a second rltuned beside the backup needs this."
        yield KeyLine("ha.lease_dir", why=why)


def _limits(found: Found | None) -> Iterator[KeyLine]:
    if found is None:
        yield KeyLine("limits.write_mode")
        return
    mode = "priority" if found.priorities.plugin else "auto"
    yield KeyLine("limits.write_mode", mode, active=True, why=found.priorities.advice)
    if found.limit is not None:
        most = max(1, found.limit.bucket - _CYCLE_REQUESTS)
        why = (
            f"slurmctld takes {found.limit.bucket} requests of a user at once (rl_bucket_size), "
            f"and a cycle needs up to {_CYCLE_REQUESTS} besides its changes. Raise both together."
        )
        yield KeyLine("limits.max_changes", most, active=True, why=why)
