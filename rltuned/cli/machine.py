"""What `rltuned check` says of this machine: Python, who we are, room for the journal."""

import os
import platform
import pwd
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rltuned import __version__
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.settings import Loaded
from rltuned.slurm.checks import Check

PYTHONS = ((3, 11), (3, 13))
"""Oldest and newest that rltuned was run with."""
_LIBRARIES = ("numpy", "torch", "pydantic")
_MIB = 1024 * 1024


def machine_checks(loaded: Loaded) -> Iterator[Check]:
    """Everything that neither Slurm nor the settings alone tell."""
    folder = loaded.settings.daemon.state_dir
    yield _runtime()
    yield _user(folder)
    yield from _space(folder, loaded.settings.journal.max_mib)


def _runtime() -> Check:
    told = f"rltuned {__version__}, Python {platform.python_version()}"
    try:
        told += "".join(f", {name} {version(name)}" for name in _LIBRARIES)
    except PackageNotFoundError as error:
        return Check.warn(
            "runtime",
            f"{told}; the package {error.name} is not installed",
            "install rltuned again: only base policies can rank without torch",
        )
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return Check.ok("runtime", told)
    return Check.warn("runtime", told, "use one of Python 3.11 to 3.13; others were not tried")


def _user(folder: Path) -> Check:
    """Root may nearly everything: what root finds in order may not be so for the service."""
    uid = os.geteuid()
    name = _name(uid)
    try:
        owner = folder.stat().st_uid
    except OSError:
        return Check.ok("user", f"{name} ({uid})")  # the journal's check says why
    if uid != 0 or owner == 0:
        return Check.ok("user", f"{name} ({uid})")
    return Check.warn(
        "user",
        f"{name} asks, but {folder} belongs to {_name(owner)}: rights in Slurm may differ",
        f"runuser -u {_name(owner)} -- rltuned check",
    )


def user_name() -> str:
    """Who asks: a user name, or a number that has none."""
    return _name(os.geteuid())


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _space(folder: Path, max_mib: int) -> Iterator[Check]:
    try:
        free_mib = shutil.disk_usage(folder).free / _MIB
    except OSError:
        return  # the journal's check says why
    journal = Journal(folder)
    try:
        used_mib = journal.size().bytes / _MIB
    except JournalError:
        return
    finally:
        journal.close()
    told = f"{free_mib:.0f} MiB free for a journal of at most {max_mib} MiB, {used_mib:.0f} used"
    if free_mib + used_mib >= max_mib:
        yield Check.ok("space", told)
    else:
        remedy = "lower journal.max_mib, or move daemon.state_dir: a full disk ends all writing"
        yield Check.warn("space", told, remedy)
