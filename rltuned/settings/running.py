"""The keys of the loop, apart from the others: `rltuned restore` needs them, and no numpy."""

from pathlib import Path

from rltuned.settings.key import FilePath, Keys, key


class DaemonKeys(Keys):
    """The loop."""

    interval_s: float = key(
        60.0,
        "seconds",
        "Time from the start of one cycle to the start of the next. Slurm's own priorities move "
        "about as often; a shorter interval costs slurmctld more than it helps.",
        ge=1.0,
        le=3600.0,
    )
    max_backoff_s: float = key(
        600.0,
        "seconds",
        "Longest pause between two tries while Slurm does not answer; the pause doubles from one "
        "interval up to this.",
        ge=1.0,
        le=86400.0,
    )
    state_dir: FilePath = key(
        Path("/var/lib/rltuned"),
        "",
        "Folder of the journal (journal.sqlite). Without a writable journal nothing is written to "
        "Slurm, because nothing could be given back.",
    )
    pause_file: FilePath = key(
        Path("/run/rltuned/PAUSE"),
        "",
        "While this file exists rltuned observes and reports but writes nothing. It is checked "
        "right before every write.",
    )
    max_snapshot_age_s: float = key(
        120.0,
        "seconds",
        "Nothing is written from an older snapshot than this, by any of three clocks, checked "
        "right before every batch: a daemon that was stopped must read the queue again first.",
        ge=1.0,
        le=3600.0,
    )
