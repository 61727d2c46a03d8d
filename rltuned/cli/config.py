"""`rltuned config`: write, check and show the settings."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rltuned import __version__
from rltuned.cli.asking import real_slurm
from rltuned.cli.check_slurm import QUEUE, SITE, facts_of
from rltuned.cli.facts import Facts, wrong
from rltuned.cli.flags import (
    ConfigOption,
    JsonOption,
    PolicyOption,
    printable,
    say,
    settings_of,
)
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.wiring import check_policy_name
from rltuned.errors import BackendError, SettingsError
from rltuned.files import sync_folder
from rltuned.policies.shelf import from_root
from rltuned.settings import Flag, from_flags, load
from rltuned.settings.reference import KeyLine, draft, header, toml
from rltuned.settings.reference import example as example_text
from rltuned.settings.source import DEFAULT_PATH

STANDARD_OUTPUT = Path("-")
STATE_DIR, RUN_DIR = Path("/var/lib/rltuned"), Path("/run/rltuned")
_HOME = Path("/etc/rltuned")
_TABLES = ("daemon", "policy", "scope", "limits", "ladder", "ha", "http", "slurm")
_SHOWN = (
    "policy.name", "scope.sla_partitions", "scope.partitions", "scope.excluded_users",
    "scope.excluded_accounts", "scope.excluded_qos", "limits.write_mode",
)  # fmt: skip
"""Keys that every file shows, besides the stage."""
_NOTES = (
    "Keys that are not here have their defaults: `man rltuned.toml`, docs/configuration.md.",
    "Check it with `rltuned config check FILE`; a running daemon takes it over on SIGHUP.",
)
_PROMISED = (
    "Slurm does not say which partitions were promised to a group: name them before the stage is "
    "canary or full."
)
_HINT = (
    "name its slurm.conf by --slurm-conf, or write a file for any cluster by --offline "
    "(SLURM_CONF is not read: a stray export must not point at another cluster)"
)
_EXISTS = "exists and is not overwritten"
_MODE = 0o644
"""Nothing in it is secret; the service user must read it, and root alone may write it."""
_FLAGS = {"policy.name": "--policy", "slurm.conf": "--slurm-conf", "slurm.bin_dir": "--bin-dir"}


def init(
    file: Annotated[
        Path, typer.Argument(help="The file to write; must not exist. - = standard output.")
    ] = DEFAULT_PATH,
    *,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no cluster: a file that fits any.")
    ] = False,
    policy: PolicyOption = None,
    slurm_conf: Annotated[Path | None, typer.Option(help="slurm.conf of the cluster.")] = None,
    bin_dir: Annotated[Path | None, typer.Option(help="Folder of Slurm's commands.")] = None,
) -> None:
    """Write a commented settings file, fitted to the partitions and weights found.

    The stage is observe, and no SLA partition is guessed: name yours before you go further.

    Exit codes: 0 = written; 1 = the cluster cannot be read; 2 = the file exists or cannot be
    written, or an option cannot be used.
    """
    if file != STANDARD_OUTPUT:
        if file.is_symlink() or file.exists():
            raise SettingsError(f"{file}: {_EXISTS}; move it away or name another")
        if not (folder := file.absolute().parent).is_dir():
            raise SettingsError(
                f"{file}: there is no folder {folder}; make it (sudo mkdir -m 755 {folder}), or "
                "name another file"
            )
    paths = {"slurm.conf": slurm_conf, "slurm.bin_dir": bin_dir}
    keys: dict[str, object] = {k: p.absolute() for k, p in paths.items() if p is not None}
    if policy is not None:
        keys["policy.name"] = from_root(policy)
    loaded = from_flags(tuple(Flag(key, value, _FLAGS[key]) for key, value in keys.items()))
    check_policy_name(loaded)
    when = datetime.fromtimestamp(SystemClock().now(), UTC)
    written = f"written by `rltuned config init` (rltuned {__version__}), {when:%Y-%m-%d}"
    path = None if file == STANDARD_OUTPUT else file.absolute()
    facts = None if offline else facts_of(loaded, real_slurm(loaded, SystemClock()))
    text = fitted(facts, path, keys, written)
    if path is None:
        _checked(text, Path(tempfile.gettempdir()), None)
        sys.stdout.write(text)
        return
    _checked(text, path.parent, file)
    say(f"{file}: written")
    if not offline:
        say("Slurm does not know which partitions are promised: see scope.sla_partitions.")


def fitted(facts: Facts | None, path: Path | None, keys: Mapping[str, object], written: str) -> str:
    """The text of the file: a key is active where Slurm itself says what it must be, and what only
    people know stays a comment. facts: None = it fits any cluster. path: None = standard output.
    keys: dotted key -> value, written as they are. Raises BackendError: what to do.
    """
    head, named, fits = "No cluster was asked (--offline).", "", dict[str, tuple[object, str]]()
    if facts is not None:
        for name in ("config", "seen", "controllers"):
            if error := wrong(facts[name]):
                raise BackendError(f"the cluster cannot be read: {error[0]}; {_HINT}")
        cluster, release = map(printable, (facts["seen"].cluster, facts["SLURM_VERSION"]))
        head = f"Cluster {cluster}, Slurm {release}."
        named = f" Here: {', '.join(map(printable, facts['partitions']))}."
        fits = {row.key: fit for row in (*SITE, *QUEUE) if row.key and (fit := row.fits(facts))}
    fits = dict.fromkeys(_SHOWN, (None, "")) | fits
    if path is not None and path.parent == _HOME and path.suffix == ".toml":
        fits |= _of_instance(path.stem) if path.stem != "rltuned" else {}
    fits |= {"scope.sla_partitions": (None, _PROMISED + named), "ladder.stage": ("observe", "")}
    fits |= {key: (value, fits.get(key, ("", ""))[1]) for key, value in keys.items()}
    lines = [
        KeyLine(key, value, active=value is not None and key != "scope.partitions", why=why)
        for key, (value, why) in fits.items()
    ]
    lines.sort(key=lambda line: _TABLES.index(line.table))
    return draft([f"rltuned.toml, {written}.", *_NOTES, "", head], lines)


def _of_instance(name: str) -> dict[str, tuple[object, str]]:
    """Keys of rltuned@NAME, which reads /etc/rltuned/NAME.toml."""
    return {
        "daemon.state_dir": (STATE_DIR / name, f"For rltuned@{name}, a folder of its own."),
        "daemon.pause_file": (RUN_DIR / name / "PAUSE", ""),
        "http.port": (None, "Each daemon of this machine needs a port of its own."),
    }


def _checked(text: str, folder: Path, file: Path | None) -> None:
    """Check the text as a file, then name it, whole; never over another. Raises SettingsError."""
    draft: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=".rltuned-", suffix=".toml", dir=folder)
        draft = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), _MODE)
            os.fsync(stream.fileno())
        load(draft)
        if file is not None:
            os.link(draft, file)
            sync_folder(folder)
    except FileExistsError:
        raise SettingsError(f"{file}: {_EXISTS}") from None
    except OSError as error:
        raise SettingsError(f"{file or folder}: cannot be written: {error.strerror}") from None
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


app = typer.Typer(no_args_is_help=True)


@app.callback()
def config_group() -> None:
    """Write, check and show the settings."""


app.command()(init)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The settings file to check.")]) -> None:
    """Check a settings file without starting anything.

    Exit codes: 0 = fit; 2 = unfit, with file, line, key and reason.
    """
    loaded = load(file)
    check_policy_name(loaded)
    for key, path in (
        ("daemon.state_dir", loaded.settings.daemon.state_dir),
        ("ha.lease_dir", loaded.settings.ha.lease_dir),
    ):
        if path is not None and path.exists() and not path.is_dir():
            raise loaded.error(key, f"{path} is not a folder")
    say(f"{file}: ok")


@app.command()
def show(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print every value in force and where it comes from."""
    loaded = settings_of(config)
    tables = loaded.settings.model_dump(mode="json")
    if as_json:
        rows = {
            f"{name}.{key}": {"value": value, "source": loaded.origin(f"{name}.{key}")}
            for _, name, keys in _parts(tables)
            for key, value in keys.items()
        }
        say(json.dumps(rows, indent=2))
        return
    for head, name, keys in _parts(tables):
        say(head)
        for key, value in keys.items():
            text = f"# {key} =" if value is None else f"{key} = {toml(value)}"
            say(f"{text:<56} # {loaded.origin(f'{name}.{key}')}")
        say()


def _parts(tables: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Header, name and keys of each table; of an array of tables each for itself."""
    for table, keys in tables.items():
        if isinstance(keys, list):
            yield from ((header(table), f"{table}.{i}", one) for i, one in enumerate(keys))
        else:
            yield header(table), table, keys


@app.command()
def example() -> None:
    """Print a settings file with every key, its default and its meaning."""
    say(example_text().rstrip("\n"))
