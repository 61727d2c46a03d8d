"""A day of a controller like those of production, an hour for eight of its hours: `make day`.

    python -m scripts.tools.day run [--hours 24] [--part 8] [--speed 8] [--nodes 1000]
        [--waiting 3000] [--seed 1]
    python -m scripts.tools.day report [--data docs/data/day.jsonl]

The clock of Slurm and of the daemon is 8 times as fast: 24 times is more than two processors hold.
A thousand nodes have a slurmd each, 3,000 jobs wait. The day is played in parts, one in each run,
with a Slurm and a verdict of its own; the next run goes on at the hour where the last one ended.
In each part users submit, cancel, hold and change jobs, nodes fail and come back, slurmctld is
restarted twice, the daemon's settings are reloaded, its canary is under way, `tune` runs once, and
all is restored. What a quarter of an hour came to is a line of DIR/rows.jsonl. Exit code 1:
something is wrong, or hours are missing.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from scripts.benchmarks.check import machine
from scripts.benchmarks.controller import processor_s, rpc_counts, rss_mib
from scripts.studies.experiment_slurm.play import MEMORY, facts
from scripts.tools.day_judge import Row, hours_of, judged, read, table
from scripts.tools.day_world import MINUTE_S, SERVICE, TUNED, World, big_lab

QUARTER = 15
"""Minutes of a row."""
MINUTES = 60
PLAN = ((0.2, "reload"), (0.35, "restart"), (0.5, "reload"), (0.6, "restart"), (0.7, "tune"),
        (0.85, "reload"))  # fmt: skip
"""What happens once, by the share of the part that has passed."""
STAGES = ("observe", "decide", "journal", "apply")
TAIL = 65_536
CYCLE = '"event": "cycle"'


class Meters:
    """How much each counter rose since the last row; one that is smaller began again."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._risen: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """Its value now."""
        last = self._last.get(name, 0.0)
        risen = value - last if value >= last else value
        self._risen[name] = self._risen.get(name, 0.0) + risen
        self._last[name] = value

    def rose(self, name: str, value: float) -> float:
        """Since the last row, which this ends."""
        self.note(name, value)
        return round(self._risen.pop(name), 2)


def counters(world: World) -> dict[str, float]:
    """Processor time and RPCs of the daemon and of slurmctld."""
    rpcs = rpc_counts(world.lab, "user")
    return {
        "cpu_s rltuned": processor_s(world.running.pid),
        "cpu_s slurmctld": processor_s(world.lab.pid("slurmctld")),
        "rpcs rltuned": rpcs.get(SERVICE, 0), "rpcs slurmctld": sum(rpcs.values()),
    }  # fmt: skip


def measured(world: World, meters: Meters) -> Row:
    """Processor time, memory and RPCs by process, since the last row."""
    pids = {"rltuned": world.running.pid, "slurmctld": world.lab.pid("slurmctld")}
    found: Row = {name: {"rss_mib": round(rss_mib(pid), 1)} for name, pid in pids.items()}
    for name, value in counters(world).items():
        figure, process = name.split()
        found[process][figure] = meters.rose(name, value)
    return found


def looked(world: World, meters: Meters) -> Row:
    """The queue, the cycles, and whether each number is known."""
    seen = [row.split() for row in world.lab.run("squeue", "-h", "-a", "-o", "%A %t").splitlines()]
    world.queue = [job for job, state in seen if state == "PD"]
    cycles = list(world.events("cycle"))
    new = cycles[len(cycles) - int(meters.rose("cycles", len(cycles))) :]
    took_s = [sum(event.get(f"{stage}_s", 0.0) for stage in STAGES) for event in new]
    skips = Counter(event["reason"] for event in world.events("cycle_skipped"))
    numbers, earlier, lost = world.compared()
    return {
        "waiting": len(world.queue), "running": sum(state == "R" for _, state in seen),
        "cycles": len(new),
        "cycle_s": round(median(took_s), 3) if new else None,
        "applied": sum(event.get("applied", 0) for event in new),
        "skipped": {why: rose for why, count in skips.items()
                    if (rose := meters.rose(f"skipped {why}", count))},
        "numbers": numbers, "earlier": earlier, "lost": lost[:10],
        "did": {verb: rose for verb, count in world.done.items()
                if (rose := meters.rose(f"did {verb}", count))},
    }  # fmt: skip


def last_pending(world: World) -> int:
    """How many jobs waited in the daemon's last cycle; the target when there was none."""
    with world.running.err.open("rb") as log:
        log.seek(max(0, os.stat(log.fileno()).st_size - TAIL))  # noqa: PTH116 - of the open file
        lines = log.read().decode(errors="replace").splitlines()
    found = (line for line in reversed(lines) if CYCLE in line and line.endswith("}"))
    line = next(found, "")
    return int(json.loads(line)["pending"]) if line.startswith("{") else world.target


def do(world: World, what: str) -> None:
    """One entry of PLAN."""
    if what == "restart":
        world.restart()
    elif what == "reload":
        world.reload(world.rng.choice((0.45, 0.5, 0.6)))
        world.running.signal(signal.SIGHUP)
    else:
        world.tune()


def play(world: World, part: int, minutes: range, out: Path) -> None:
    """The minutes of a part, a row for each quarter of an hour."""
    plan = [(minutes[int(at * len(minutes))], what) for at, what in PLAN]
    meters, late_s, happened = Meters(), list[float](), list[str]()
    measured(world, meters)  # from here on
    looked(world, meters)
    began, tick_s = time.monotonic(), MINUTE_S / world.lab.speed
    for minute in minutes:
        ahead_s = began + (minute - minutes.start) * tick_s - time.monotonic()
        late_s.append(round(max(0.0, -ahead_s), 3))
        time.sleep(max(0.0, ahead_s))
        while plan and plan[0][0] <= minute:
            happened.append(plan.pop(0)[1])
            for name, value in counters(world).items():
                meters.note(name, value)  # a restart begins them again
            do(world, happened[-1])
        world.act(minute, last_pending(world))
        if (minute + 1) % QUARTER == 0:
            row = {"kind": "quarter", "part": part, "hour": (minute + 1) / MINUTES,
                   "late_s": [median(late_s), max(late_s)], "happened": happened,
                   **looked(world, meters), **measured(world, meters)}  # fmt: skip
            note(out, row)
            late_s, happened = [], []


def ended(world: World, part: int) -> Row:
    """The last row of a part: everything is restored, and what the log and the night said."""
    night = world.night
    tuned = None if night is None else night.wait(1_200)
    world.stop()
    began = time.monotonic()
    wrong = world.restored(list(world.held), ())
    text = (world.home / TUNED).read_text() if night else ""
    return {
        "kind": "end", "part": part, "restored": wrong,
        "restore_s": round(time.monotonic() - began, 1),
        "tune": tuned, "tune_said": text[-600:],
        "loaded": sum(1 for _ in world.events("loaded")),
        "reload_failed": sum(1 for _ in world.events("reload_failed")),
        "states": Counter(event["state"] for event in world.events("state")),
        "pairs": sum(1 for _ in world.events("pair_decided")),
        "breakers": [event["detail"] for event in world.events("breaker_opened")],
    }  # fmt: skip


def note(out: Path, row: Row) -> None:
    """Append it durably."""
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())
    print(json.dumps(row), flush=True)


def run(given: argparse.Namespace) -> int:
    """The hours that are missing, as a part; then the report."""
    given.folder.mkdir(parents=True, exist_ok=True)
    out = given.folder / "rows.jsonl"
    asked = {name: getattr(given, name) for name in ("hours", "nodes", "waiting", "seed", "speed")}
    rows = read(out)
    begun = [row for row in rows if row["kind"] == "part"]
    if begun and begun[0]["asked"] != asked:
        print(f"day: {out} is of {begun[0]['asked']}; remove it, or ask the same", file=sys.stderr)
        return 2
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))  # without a line that was cut
    start_h = hours_of(rows)
    end_h = min(given.hours, start_h + given.part)
    minutes = range(int(MINUTES * start_h), int(MINUTES * end_h))
    if minutes:
        note(out, {"kind": "part", "part": len(begun) + 1, "hour": minutes.start / MINUTES,
                   "asked": asked, **facts(), "processor": machine(),
                   "load": os.getloadavg()})  # fmt: skip
        _part(given, len(begun) + 1, minutes, out)
    return report(out)


def _part(given: argparse.Namespace, part: int, minutes: range, out: Path) -> None:
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rltuned-day-", dir=memory) as place:
        Path(place).chmod(0o755)  # the database and the daemon run as other users
        home = Path(place) / "rltuned"
        home.mkdir(mode=0o700)
        with big_lab(Path(place) / "slurm", given.nodes, given.speed) as lab:
            os.environ["SLURM_CONF"] = str(lab.conf)
            rng = random.Random(1_000 * given.seed + part)  # noqa: S311 - a draw, no secret
            world = World(lab=lab, home=home, rng=rng, seed=given.seed, target=given.waiting,
                          hours=len(minutes) / MINUTES)  # fmt: skip
            try:
                world.begin()
                play(world, part, minutes, out)
                note(out, ended(world, part))
            finally:
                world.kill()
                for name in lab.node_names:  # at once, where the lab ends one after the other
                    os.kill(lab.pid(f"slurmd-{name}"), signal.SIGTERM)
                for log in home.glob("run-*/stderr"):
                    shutil.copy2(log, given.folder / f"{part}-{log.parent.name}.log")


def report(data: Path) -> int:
    """The table, and what is wrong."""
    rows = read(data)
    print("\n".join(table(rows)))
    wrong = judged(rows)
    print(json.dumps({"wrong": wrong}, indent=1))
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.day", description=__doc__)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--part", type=float, default=8.0, help="hours of one run")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--waiting", type=int, default=3_000)
    parser.add_argument("--speed", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(".run/day"))
    parser.add_argument("--data", type=Path, default=Path("docs/data/day.jsonl"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the jobs of its Slurm go on
    return run(given) if given.what == "run" else report(given.data)


if __name__ == "__main__":
    sys.exit(main())
