"""Ask a live site for the four files of a backtest, and keep them in a folder.

Nothing half-written: the folder appears when it is whole. sacct's rows are packed as they come.
"""

import gzip
from pathlib import Path
from typing import Final

from rltuned.durable import whole_folder
from rltuned.errors import TraceError
from rltuned.lab.backtest.sacct_files import Report, ask_history
from rltuned.lab.backtest.site import CONFIG, HISTORY, NODES, PARTITIONS
from rltuned.slurm.run import Commands
from rltuned.slurm.site import parse_config

PACKED: Final = f"{HISTORY}.gz"
SHOWN: Final = ((NODES, ("-o", "show", "node")), (PARTITIONS, ("-o", "show", "partition")))


def collect(
    commands: Commands,
    folder: Path,
    since: float,
    until: float,
    report: Report = lambda _part: None,
    *,
    has_other: bool = False,
) -> tuple[str, ...]:
    """Save config, nodes, partitions and history; what to warn of.

    commands needs TZ=UTC in its environment. folder: new, or empty. since, until: Unix seconds.
    has_other: there is another source of the history, so one may be missing here.

    Raises:
        BackendError: a command failed.
        TraceError: there is no accounting, or the folder cannot be written.
    """
    check_new(folder)
    config = commands.ask("scontrol", "show", "config")
    known = parse_config(config)
    storage = known.get("AccountingStorageType", "")
    is_kept = storage not in {"", "accounting_storage/none"}
    if not is_kept and not has_other:
        raise TraceError(
            "this Slurm keeps no history (AccountingStorageType is not slurmdbd): there is nothing "
            "to play; `rltuned run --dry-run` and `rltuned plan` show what would change now"
        )
    try:
        with whole_folder(folder) as place:
            (place / CONFIG).write_text(config, encoding="utf-8")
            for name, words in SHOWN:
                with (place / name).open("w", encoding="utf-8") as out:
                    shown = commands.call("scontrol", *words).lines()
                    out.writelines(f"{line}\n" for line in shown)
            if is_kept:
                with gzip.open(place / PACKED, "wt", encoding="utf-8") as rows:
                    found = ask_history(commands, since, until, report)
                    rows.writelines(f"{row}\n" for row in found)
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    if not is_kept:
        return ("this Slurm keeps no history: the daemon's journal alone is the record",)
    private = known.get("PrivateData", "none")
    if "jobs" in private:
        return (f"PrivateData={private}: sacct shows all jobs to operators only",)
    return ()


def check_new(folder: Path) -> None:
    """Refuse a folder that holds something. Raises TraceError: it does, or it is none."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TraceError(f"{folder}: is there already and not empty; choose another folder")
    except OSError as error:
        raise TraceError(f"{folder}: {error.strerror}") from error
