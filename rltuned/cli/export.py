"""`rltuned export`: the files beside the program that a site installs itself."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from rltuned.cli.flags import say
from rltuned.errors import SettingsError
from rltuned.files import shared_files

app = typer.Typer(no_args_is_help=True)

_PROGRAM: Final = "/opt/rltuned/bin/rltuned"
"""Where the units expect the program."""
_RUNBOOK: Final = "file:///usr/share/doc/rltuned/runbook.md"
"""Where the packages have it."""

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder for the files; made where it is missing.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Also over files that are there.")]


@app.callback()
def export() -> None:
    """Write units, dashboards, alerts or examples into a folder.

    Exit codes: 0 = written; 2 = a file is there already, or cannot be written.
    """


@app.command()
def units(folder: FolderArgument, *, force: ForceOption = False) -> None:
    """Write the units of systemd, the service user and a drop-in for SlurmUser.

    The units run this very installation.
    """
    program = str(Path(sys.prefix, "bin", "rltuned"))
    _write(folder, "systemd", "*", force=force, exchange=(_PROGRAM, program))


@app.command()
def dashboards(folder: FolderArgument, *, force: ForceOption = False) -> None:
    """Write the dashboards of Grafana, as JSON."""
    _write(folder, "deploy/grafana/dashboards", "*.json", force=force)


@app.command()
def alerts(
    folder: FolderArgument,
    *,
    force: ForceOption = False,
    runbook: Annotated[
        str, typer.Option("--runbook-url", help="Where the alerts find the runbook.")
    ] = _RUNBOOK,
) -> None:
    """Write the alerts and the recording rules of Prometheus."""
    _write(folder, "deploy/prometheus", "*ing.yml", force=force)
    _write(folder, "deploy/prometheus", "alerts.yml", force=force, exchange=(_RUNBOOK, runbook))


@app.command()
def examples(folder: FolderArgument, *, force: ForceOption = False) -> None:
    """Write a settings file with every key, and job_submit.lua, which guards updates."""
    _write(folder, "deploy", "*.example.toml", force=force)
    _write(folder, "deploy", "job_submit.lua", force=force)


def _write(
    folder: Path, source: str, pattern: str, *, force: bool, exchange: tuple[str, str] = ("", "")
) -> None:
    if not (files := shared_files(source, pattern)):
        raise SettingsError(f"this installation has no {source}")
    there = [folder / file.name for file in files if (folder / file.name).exists()]
    if there and not force:
        raise SettingsError(f"{there[0]}: is there already; --force replaces it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            path = folder / file.name
            path.write_text(file.read_text("utf-8").replace(*exchange), "utf-8")
            path.chmod(file.stat().st_mode & 0o777)
    except OSError as error:
        raise SettingsError(f"{error.filename}: cannot be written: {error.strerror}") from None
    for file in files:
        say(str(folder / file.name))
