"""What release 0.2.0 leaves: the journals in tests/data/0.2.0, for tests/e2e/test_upgrade_slurm.py.

Copied into a checkout of that release and run there, with a Slurm of the tests:

    python -m scripts.tools.old_state FOLDER

In each scenario the release's daemon writes to a queue until all kinds of change are there, and is
killed. The jobs of a new Slurm are numbered from 1, so the test submits the same ones and has the
same ids.
"""

import signal
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rltuned.journal.snapshots import FILE_NAME
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.lab import SlurmLab

AGES: Final = ("PriorityWeightAge=100000", "PriorityMaxAge=14-0", "PriorityWeightPartition=500000")
SIZES: Final = "--comment=rltuned.nodes=1-4 rltuned.speed=1:1,2:1.9,4:2"
ALONE: Final = ("--exclusive", "--gres=gpu:p100:1", "-n1", "-c2", "--mem=2000", "-t2")
BUSY: Final = ("-N5", "--exclusive", "-t30")
QUEUE: Final = (("-t600",), ("-t30", "--nice=70"), ("-t90", "--array=0-3"), ("-t20",))
LUA: Final = 'local STAMP = "/run/rltuned/newcomers"'


@dataclass(frozen=True)
class Scenario:
    """jobs: sbatch options in order of submission, the first takes all nodes. later: submitted when
    the script of `order.newcomers` has its formula. written: (job id, field) of the changes that
    the daemon must have made.
    """

    jobs: tuple[tuple[str, ...], ...]
    written: frozenset[tuple[int, str]]
    settings: Mapping[str, Mapping[str, Any]]
    priority_type: str = "priority/multifactor"
    later: tuple[tuple[str, ...], ...] = ()
    extra: tuple[str, ...] = field(default=AGES)


def _mode(mode: str) -> dict[str, Mapping[str, Any]]:
    return {"ladder": {"stage": "full"}, "limits": {"hysteresis": 0.0, "write_mode": mode}}


NUMBERS: Final = (2, 3, 4, 5)
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "site_factor": Scenario(
        jobs=(
            BUSY,
            *QUEUE,
            ("-t600", "-Afast", "--nice=2000"),
            ("-t1", "--dependency=afterok:1"),
            ("-N1-4", "-n4", "-t5", SIZES),
            ALONE,
            ALONE,
        ),
        written=frozenset(
            {
                *((number, "site_factor") for number in (*NUMBERS, 6, 7)),
                (8, "num_nodes"),
                (9, "oversubscribe"),
                (10, "oversubscribe"),
            }
        ),
        settings={
            **_mode("site_factor"),
            "order": {"stretch": 1.0},
            "policy": {"name": "delay", "placement": "milp"},
            "oversubscribe": {"scope": ["gpu"]},
            "groups": {"boost": 0.9},
            "sizes": {"mode": "on"},
            "sla": {"account": "fast", "max_wait_s": 1.0, "lift_jobs": 2},
        },
    ),
    "priority": Scenario(
        jobs=(BUSY, *QUEUE),
        written=frozenset((number, "priority") for number in NUMBERS),
        settings=_mode("priority"),
    ),
    "basic": Scenario(
        jobs=(BUSY, *QUEUE),
        written=frozenset((number, "priority") for number in NUMBERS),
        settings=_mode("auto"),
        priority_type="priority/basic",
        extra=(),
    ),
    "newcomers": Scenario(
        jobs=(BUSY, *QUEUE),
        later=(("-t700", "--gres=gpu:p100:2"), ("-t40", "--gres=gpu:p100:4")),
        written=frozenset((number, "site_factor") for number in (*NUMBERS, 6, 7)),
        settings={**_mode("site_factor"), "policy": {"name": "delay"}, "order": {"stretch": 1.0}},
    ),
}


def lab_of(one: Scenario, folder: Path | None = None, extra: tuple[str, ...] = ()) -> SlurmLab:
    return SlurmLab(
        folder=folder,
        accounting=one.priority_type.endswith("multifactor"),
        extra=(*one.extra, *extra),
        priority_type=one.priority_type,
    )


def submit(lab: SlurmLab, one: Scenario) -> list[int]:
    """Every job but the later ones; the first runs."""
    if lab.accounting:
        lab.run("sacctmgr", "-i", "add", "account", "fast")
        lab.run("sacctmgr", "-i", "add", "user", "root", "account=fast")
    first = lab.sbatch(*one.jobs[0])
    lab.wait_for(lambda: lab.state(first) == "R", "all nodes are busy")
    return [first, *(lab.sbatch(*options) for options in one.jobs[1:])]


def written(state: Path) -> set[tuple[int, str]]:
    with closing(sqlite3.connect(f"file:{state / FILE_NAME}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT job_id, field FROM changes WHERE result = 'applied'")
        return set(rows)


def dumped(state: Path) -> str:
    """The journal as SQL."""
    with closing(sqlite3.connect(state / FILE_NAME)) as db:
        names = ("application_id", "user_version")
        head = [f"PRAGMA {n} = {db.execute(f'PRAGMA {n}').fetchone()[0]};" for n in names]
        return "\n".join((*head, *db.iterdump(), ""))


def play(one: Scenario, folder: Path) -> str:
    """What the daemon's journal holds when every change was made."""
    script = Path("deploy/job_submit.lua").read_text().replace(LUA, f'local STAMP = "{folder}/st"')
    (folder / "job_submit.lua").write_text(script)
    state, stamp = folder / "state-of-rltuned", folder / "st"
    state.mkdir(mode=0o700)
    settings = dict(one.settings)
    if one.later:
        settings["order"] = {**settings["order"], "newcomers": str(stamp)}
    with lab_of(one, folder, ("JobSubmitPlugins=lua",) if one.later else ()) as lab:
        submit(lab, one)
        config = write_settings(folder / "rltuned.toml", lab.conf, state, **settings)
        with Daemon(folder, "--config", str(config)) as daemon:
            daemon.wait_for_log("cycle=", times=3)
            if one.later:
                daemon.wait_for(stamp.exists, "a formula")
                for options in one.later:
                    lab.sbatch(*options)
            daemon.wait_for(lambda: written(state) >= one.written, f"{sorted(one.written)}")
            daemon.signal(signal.SIGKILL)
            daemon.ends()
    return dumped(state)


def main() -> None:
    target = Path(sys.argv[1])
    for name, one in SCENARIOS.items():
        with tempfile.TemporaryDirectory(prefix="rltlab-") as folder:
            (target / f"{name}.sql").write_text(play(one, Path(folder)))
        print(f"{name}: {(target / f'{name}.sql').stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
