"""Everything that can change what the daemon runs or decides, and who can change that.

The settings file and a model are judged where they are read. Here is the rest: Slurm's programs and
the folders that they are found in, slurm.conf, and the folders of the journal, the lease and the
pause file. docs/security.md has the list.
"""

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rltuned.errors import SettingsError
from rltuned.settings import Loaded
from rltuned.slurm.run import NEEDED
from rltuned.trusted import Flaw, flaws_on, owner_of

SLURM_CONF: Final = Path("/etc/slurm/slurm.conf")
"""Where Slurm is mostly built to look."""
STATE: Final = "daemon.state_dir"
_SLURM: Final = "slurm"
"""The usual SlurmUser: it rules the cluster, so what it owns of Slurm is trusted."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A place that is not trusted. key: the setting. fatal: any user can change it: no start."""

    key: str
    flaw: Flaw
    fatal: bool

    def __str__(self) -> str:
        return str(self.flaw)


def refuse_untrusted(loaded: Loaded, *, dry_run: bool = False) -> tuple[Doubt, ...]:
    """What is not trusted, where a warning is enough. dry_run: another user's state folder does not
    matter. Raises SettingsError: any user can change a place, or it cannot be looked at.
    """
    found = doubts(loaded)
    fatal = [d for d in found if d.fatal and not (dry_run and d.key == STATE)]
    lines = [str(loaded.error(d.key, str(d))) for d in fatal]
    if lines:
        raise SettingsError("\n".join(dict.fromkeys(lines)))
    return found


def doubts(loaded: Loaded, path: str | None = None) -> tuple[Doubt, ...]:
    """Every place that is not trusted, each once. path: where Slurm's programs are; None = PATH."""
    searched = os.environ.get("PATH", "") if path is None else path
    settings = loaded.settings
    slurm, state = settings.slurm, settings.daemon.state_dir
    also: tuple[int, ...] = ()
    with suppress(KeyError):
        also = (pwd.getpwnam(_SLURM).pw_uid,)
    folders = [slurm.bin_dir] if slurm.bin_dir else [*map(Path, searched.split(os.pathsep))]
    places = [("slurm.bin_dir", place, also) for place in _programs(folders)]
    places.append(("slurm.conf", slurm.conf or SLURM_CONF, also))
    if slurm.pyslurm_python is not None:
        places.append(("slurm.pyslurm_python", slurm.pyslurm_python, also))
    if loaded.path is not None:
        places.append(("settings", loaded.path, ()))
    places.append((STATE, state, owner_of(state)))
    if settings.ha.lease_dir is not None:
        places.append(("ha.lease_dir", settings.ha.lease_dir, ()))
    places.append(("daemon.pause_file", settings.daemon.pause_file.parent, ()))
    return tuple(dict.fromkeys(doubt for place in places for doubt in _doubts(*place)))


def _programs(folders: list[Path]) -> Iterator[Path]:
    """The programs of a cycle, with every place that is searched before the one that has it."""
    for name in NEEDED:
        for folder in folders:
            yield folder / name
            if os.access(folder / name, os.X_OK):
                break


def _doubts(key: str, place: Path, also: tuple[int, ...]) -> Iterator[Doubt]:
    if not place.is_absolute() and key == "slurm.bin_dir":
        yield Doubt(key, Flaw(place, "PATH names a folder that is not absolute"), fatal=True)
        return
    try:
        for flaw in flaws_on(place, also=also):
            # where the pause file's folder is sticky, others can pause the daemon, but not end a
            # pause
            is_pause = key == "daemon.pause_file" and flaw.path == place
            harmless = is_pause and bool(place.stat().st_mode & stat.S_ISVTX)
            yield Doubt(key, flaw, fatal=not flaw.by_group and not harmless)
    except OSError as error:
        yield Doubt(key, Flaw(place, f"cannot be looked at: {error.strerror}"), fatal=False)
