"""A day of a controller like those of production, an hour for eight of its hours: `make day`.

    python -m scripts.tools.day run | report

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
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from scripts.benchmarks.check import machine
from scripts.studies.experiment_slurm import arms
from scripts.studies.experiment_slurm.lab import FastLab
from scripts.studies.experiment_slurm.play import MEMORY, facts
from scripts.tools.fast_daemon import ARM, FastDaemon, processor_s, rpc_counts, status
from tests.accounting import THIRD as SERVICE
from tests.accounting import as_user
from tests.lab import NodeSpec

Row = dict[str, Any]
QUARTER, MINUTES, MINUTE_S, HOUR_S = 15, 60, 60.0, 3_600.0
"""Minutes of a row, and of an hour."""
PLAN = ((0.2, "reload"), (0.35, "restart"), (0.5, "reload"), (0.6, "restart"), (0.7, "tune"),
        (0.85, "reload"))  # fmt: skip
"""What happens once, by the share of the part that has passed."""
STAGES = ("observe", "decide", "journal", "apply")
NODES_OF = ((1, 30), (2, 20), (4, 20), (8, 15), (16, 10), (32, 5))
"""How many whole nodes a job asks for, and the weight of that; a tenth of the single ones want half
a node. Fewer jobs of more nodes start than at most sites: a start takes half a second of a
processor, which is four seconds of this clock."""
MEAN_NODES, MEDIAN_H, SPREAD, LONGEST_H = 6, 1.6, 0.8, 6.0
"""Run times: a logarithmic normal distribution, cut."""
TASKS = 25
"""Of an array of the first queue: a thousand times sbatch takes minutes."""
SCHEDULER = (
    "bf_continue,bf_interval=300,bf_resolution=600,bf_window=1440,bf_max_job_test=300,"
    "bf_max_time=600,bf_yield_interval=10000000,default_queue_depth=300,sched_interval=600,"
    "sched_min_interval=60000000,max_sched_time=100,batch_sched_delay=30,defer"
)
"""Of a busy site: the scheduler runs once a minute, backfill every five minutes, because a pass
takes 8 times as much of this clock. Limits that it measures by this clock are raised."""
TUNED = "tune.out"
STAGE = '\n[ladder]\nstage = "canary"\ncanary_salt = "day-{seed}"\ncanary_block_s = {block_s}\n'
BLOCKS, NIGHT = 4, 0.1
"""Blocks of the canary in a part; the share of its time that `tune` gets."""
OURS = {"policy", "snapshot", "unexpected"}
"""Skips that are no answer of Slurm's."""
DOUBTS = {"numbers_unexplained", "journal_unusable", "rival_suspected", "clock_off"}
"""States in which it does not know whose the numbers are."""
FEWEST_CYCLES = 0.9
"""Of one a minute, skipped ones included. A cycle that takes longer than its minute of the faster
clock leaves out the next one."""
NIGHT_CODES = {None, 0, 3}
"""Of `tune`: none ran, done, and a record that allows no verdict."""


class Meters:
    """How much each counter rose since the last row; one that is smaller began again."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._risen: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """Its value now."""
        last = self._last.get(name, 0.0)
        self._risen[name] = self._risen.get(name, 0.0) + value - (last if value >= last else 0.0)
        self._last[name] = value

    def rose(self, name: str, value: float) -> float:
        """Since the last row, which this ends."""
        self.note(name, value)
        return round(self._risen.pop(name), 2)


@dataclass(kw_only=True)
class World(FastDaemon):
    """The cluster with its jobs and users. seed: of all draws, and of the canary's coin; target: so
    many jobs wait; hours: of the part; queue: ids of waiting jobs, as last seen; held, down: jobs
    and nodes with the minute in which that ends.
    """

    seed: int
    target: int
    hours: float
    queue: list[str] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    down: dict[str, int] = field(default_factory=dict)
    night: subprocess.Popen[bytes] | None = None
    meters: Meters = field(default_factory=Meters)

    def begin(self) -> None:
        """Users, a full queue, and the daemon."""
        service = ("add", "user", SERVICE, "account=root", "adminlevel=operator")
        for words in (*arms.accounting_commands(), service):
            self.lab.run("sacctmgr", "-i", *words)
        self.user = SERVICE
        self.reload(0.55)
        first = self.target + len(self.lab.node_names) // MEAN_NODES  # those that start at once
        self.submit(math.ceil(first / TASKS), TASKS)
        self.start()

    def reload(self, hysteresis: float) -> None:
        """Write the settings; a daemon that runs is told."""
        block_s = max(600.0, self.hours * HOUR_S / BLOCKS)
        stage = STAGE.format(seed=self.seed, block_s=block_s)
        self.settle(MINUTE_S / self.lab.speed, stage, f"hysteresis = {hysteresis}\n")

    def submit(self, count: int, tasks: int = 1) -> None:
        """So many ordinary jobs, or arrays of so many tasks; a shell of each user submits them.

        A task that is changed by itself gets a record of its own, as if submitted so.
        """
        lines: dict[str, list[str]] = {}
        for _ in range(count):
            user = self.rng.choice(list(arms.SHARES))
            lines.setdefault(user, []).append(self._sbatch(tasks))
        for user, own in lines.items():
            shell = (*as_user(user), "sh")
            said = self.lab.run(*shell, text="\n".join(own), check=False, timeout_s=600)
            made = [line for line in said.splitlines() if line.isdigit()]
            self.done["submitted"] += tasks * len(made)
            if tasks > 1:
                each = [f"{job}_{task}" for job in made for task in range(tasks)]
                words = "".join(f"update JobId={task} Comment=own\n" for task in each)
                self.lab.run("scontrol", text=words, check=False, timeout_s=600)

    def _sbatch(self, tasks: int) -> str:
        nodes = self.rng.choices(*zip(*NODES_OF, strict=True))[0]
        half = nodes == 1 and self.rng.random() < 0.1  # noqa: PLR2004 - a tenth
        hours = min(LONGEST_H, MEDIAN_H * math.exp(self.rng.gauss(0.0, SPREAD)))
        limit_min = min(24 * 60, math.ceil(60 * hours * self.rng.choice((1.2, 2, 4)) / 30) * 30)
        array = (f"--array=0-{tasks - 1}",) if tasks > 1 else ()
        return shlex.join((
            "sbatch", *array, "--parsable", "--output=/dev/null", "--chdir=/",
            f"--job-name=train{self.rng.randint(1, 40)}", f"--nodes={nodes}",
            f"--ntasks-per-node={32 if half else 64}", f"--gres=gpu:a100:{4 if half else 8}",
            f"--qos={self.rng.choice(['normal'] * 9 + ['high'])}", f"--time={limit_min}",
            f"--wrap=exec sleep {hours * HOUR_S / self.lab.speed:.3f}",
        ))  # fmt: skip

    def act(self, minute: int) -> None:
        """A minute of users and administrators."""
        self.submit(max(0, min(4, self.target - self.last_pending())))
        for job in due(self.held, minute):
            self.ask("scontrol", "release", job)
        for node in due(self.down, minute):
            self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
        verb = self.rng.choices(("", "cancel", "hold", "limit", "fail"), (75, 9, 6, 6, 4))[0]
        if not verb or not self.queue:
            return
        job, until = self.rng.choice(self.queue), minute + self.rng.randint(30, 120)
        self.done[verb] += 1
        if verb == "cancel":
            self.ask("scancel", job)
        elif verb == "hold":
            self.held[job] = until
            self.ask("scontrol", "hold", job)
        elif verb == "limit":
            limit = f"TimeLimit={self.rng.randint(1, 24)}:00:00"
            self.ask("scontrol", "update", f"JobId={job}", limit)
        else:
            node = self.rng.choice(self.lab.node_names)
            self.down[node] = until
            self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=day")

    def last_pending(self) -> int:
        """How many jobs waited in the daemon's last cycle; the target when there was none."""
        with self.running.err.open("rb") as log:
            log.seek(max(0, os.stat(log.fileno()).st_size - 65_536))  # noqa: PTH116 - the open file
            lines = log.read().decode(errors="replace").splitlines()
        cycles = (line for line in reversed(lines) if '"event": "cycle"' in line)
        line = next((line for line in cycles if line[0] == "{" and line[-1] == "}"), "")
        return int(json.loads(line)["pending"]) if line else self.target

    def do(self, what: str) -> None:
        """One entry of PLAN."""
        for name, value in self.counters().items():
            self.meters.note(name, value)  # a restart begins them again
        if what == "restart":  # as for an upgrade
            self.lab.stop_controller()
            time.sleep(MINUTE_S / self.lab.speed)
            self.lab.start_controller()
        elif what == "reload":
            self.reload(self.rng.choice((0.45, 0.5, 0.6)))
            self.running.signal(signal.SIGHUP)
        else:
            self.tune()

    def tune(self) -> None:
        """Begin the nightly search, as the unit does, on the record of this day."""
        minutes = NIGHT * self.hours * HOUR_S / MINUTE_S / self.lab.speed
        argv = (
            *self.prefix, "nice", "-n", "19", sys.executable, "-m", "rltuned", "tune", "--json",
            "--config", str(self.config), "--test-period", "4h",
            "--minutes", f"{max(0.1, minutes):g}",
        )  # fmt: skip
        cache = {"NUMBA_CACHE_DIR": str(self.home / "numba"), "HOME": str(self.home)}
        environ = {**os.environ, **self.environ(), **cache}
        with (self.home / TUNED).open("wb") as out:
            self.night = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=environ)

    def compared(self) -> tuple[int, int, list[str]]:
        """Numbers of the journal beside those that Slurm shows: how many there are, how many of
        them are an earlier value (a write failed, or backfill put it back), and what neither
        explains. A job whose number the daemon changes meanwhile is not judged.
        """
        before, shown, after = self.owned(), self.factors(), self.owned()
        earlier, lost = 0, []
        for job, factor in shown.items():
            known = before.get(job)
            if known != after.get(job):
                continue
            earlier += known is not None and factor != known.value
            if factor if known is None else not known.explains(factor):
                lost.append(f"{job}: {factor}, journal: {known and known.value}")
        return len(after), earlier, lost

    def counters(self) -> dict[str, float]:
        """Processor time and RPCs of the daemon and of slurmctld."""
        rpcs = rpc_counts(self.lab, "user")
        return {
            "cpu_s rltuned": processor_s(self.running.pid),
            "cpu_s slurmctld": processor_s(self.lab.pid("slurmctld")),
            "rpcs rltuned": rpcs.get(SERVICE, 0), "rpcs slurmctld": sum(rpcs.values()),
        }  # fmt: skip

    def measured(self) -> Row:
        """Processor time, memory and RPCs by process, since the last row."""
        pids = {"rltuned": self.running.pid, "slurmctld": self.lab.pid("slurmctld")}
        memory = {name: int(status(pid)["VmRSS"].split()[0]) / 1024 for name, pid in pids.items()}
        found: Row = {name: {"rss_mib": round(mib, 1)} for name, mib in memory.items()}
        for name, value in self.counters().items():
            figure, process = name.split()
            found[process][figure] = self.meters.rose(name, value)
        return found

    def looked(self) -> Row:
        """The queue, the cycles, and whether each number is known."""
        rose, asked = self.meters.rose, ("squeue", "-h", "-a", "-o", "%A %t")
        seen = [row.split() for row in self.lab.run(*asked).splitlines()]
        self.queue = [job for job, state in seen if state == "PD"]
        cycles = list(self.events("cycle"))
        new = cycles[len(cycles) - int(rose("cycles", len(cycles))) :]
        took_s = [sum(event.get(f"{stage}_s", 0.0) for stage in STAGES) for event in new]
        skips = Counter(event["reason"] for event in self.events("cycle_skipped"))
        numbers, earlier, lost = self.compared()

        def since(prefix: str, counts: Counter[str]) -> dict[str, float]:
            risen = {name: rose(f"{prefix} {name}", count) for name, count in counts.items()}
            return {name: value for name, value in risen.items() if value}

        return {
            "waiting": len(self.queue), "running": sum(state == "R" for _, state in seen),
            "cycles": len(new), "cycle_s": round(median(took_s), 3) if new else None,
            "applied": sum(event.get("applied", 0) for event in new),
            "skipped": since("skipped", skips), "numbers": numbers, "earlier": earlier,
            "lost": lost[:10], "did": since("did", self.done),
        }  # fmt: skip

    def play(self, part: int, minutes: range, out: Path) -> None:
        """The minutes of a part, a row for each quarter of an hour."""
        plan = [(minutes[int(at * len(minutes))], what) for at, what in PLAN]
        late_s, happened = list[float](), list[str]()
        self.measured()  # from here on
        self.looked()
        began, tick_s = time.monotonic(), MINUTE_S / self.lab.speed
        for minute in minutes:
            ahead_s = began + (minute - minutes.start) * tick_s - time.monotonic()
            late_s.append(round(max(0.0, -ahead_s), 3))
            time.sleep(max(0.0, ahead_s))
            while plan and plan[0][0] <= minute:
                happened.append(plan.pop(0)[1])
                self.do(happened[-1])
            self.act(minute)
            if (minute + 1) % QUARTER == 0:
                note(out, {"kind": "quarter", "part": part, "hour": (minute + 1) / MINUTES,
                           "late_s": [median(late_s), max(late_s)], "happened": happened,
                           **self.looked(), **self.measured()})  # fmt: skip
                late_s, happened = [], []

    def ended(self, part: int) -> Row:
        """The last row of a part: everything is restored, and what the log and the night said."""
        tuned = None if self.night is None else self.night.wait(1_200)
        self.stop()
        began = time.monotonic()
        wrong = self.restored(list(self.held))
        text = (self.home / TUNED).read_text() if self.night else ""
        found = {name: list(self.events(name)) for name in (
            "loaded", "reload_failed", "state", "pair_decided", "breaker_opened")}  # fmt: skip
        return {
            "kind": "end", "part": part, "restored": wrong,
            "restore_s": round(time.monotonic() - began, 1), "tune": tuned,
            "tune_said": text[-600:], "loaded": len(found["loaded"]),
            "reload_failed": len(found["reload_failed"]),
            "states": Counter(event["state"] for event in found["state"]),
            "pairs": len(found["pair_decided"]),
            "breakers": [event["detail"] for event in found["breaker_opened"]],
        }  # fmt: skip


def due(book: dict[str, int], minute: int) -> list[str]:
    """Whose minute has come; they leave the book."""
    names = [name for name, until in book.items() if until <= minute]
    for name in names:
        del book[name]
    return names


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
    begun = of_kind(rows, "part")
    if begun and begun[0]["asked"] != asked:
        print(f"day: {out} is of {begun[0]['asked']}; remove it, or ask the same", file=sys.stderr)
        return 2
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))  # without a line that was cut
    start_h, part = hours_of(rows), len(begun) + 1
    end_h = min(given.hours, start_h + given.part)
    if minutes := range(int(MINUTES * start_h), int(MINUTES * end_h)):
        note(out, {"kind": "part", "part": part, "hour": minutes.start / MINUTES, "asked": asked,
                   **facts(), "processor": machine(), "load": os.getloadavg()})  # fmt: skip
        _part(given, part, minutes, out)
    return report(out)


def _part(given: argparse.Namespace, part: int, minutes: range, out: Path) -> None:
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rltuned-day-", dir=memory) as place:
        Path(place).chmod(0o755)  # the database and the daemon run as other users
        home = Path(place) / "rltuned"
        home.mkdir(mode=0o700)
        names = tuple(f"n{number:04d}" for number in range(1, given.nodes + 1))
        lab = FastLab(
            folder=Path(place) / "slurm", partitions=(arms.PARTITION,), accounting=True,
            nodes=(NodeSpec(names, cpus=64, mem_mib=512_000, gpu_type="a100", gpus=8),),
            speed=given.speed, extra=("AccountingStorageTRES=gres/gpu",),
            # nobody asks a thousand nodes on two processors all the time
            settings={**arms.slurm_settings(ARM), "SchedulerParameters": SCHEDULER,
                      "SlurmdTimeout": "0"},
        )  # fmt: skip
        with lab:
            os.environ["SLURM_CONF"] = str(lab.conf)
            rng = random.Random(1_000 * given.seed + part)  # noqa: S311 - a draw, no secret
            world = World(lab=lab, home=home, rng=rng, seed=given.seed, target=given.waiting,
                          hours=len(minutes) / MINUTES)  # fmt: skip
            try:
                world.begin()
                world.play(part, minutes, out)
                note(out, world.ended(part))
            finally:
                world.kill()
                for name in names:  # at once, where the lab ends one after the other
                    os.kill(lab.pid(f"slurmd-{name}"), signal.SIGTERM)
                for log in home.glob("run-*/stderr"):
                    shutil.copy2(log, given.folder / f"{part}-{log.parent.name}.log")


def read(path: Path) -> list[Row]:
    """The rows; none when there is no file. A last line that was cut is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    """Those of a kind: part, quarter, end."""
    return [row for row in rows if row["kind"] == kind]


def hours_of(rows: Sequence[Row]) -> float:
    """How far the day is."""
    return max((row["hour"] for row in of_kind(rows, "quarter")), default=0.0)


def judged(rows: Sequence[Row]) -> list[str]:
    """What is wrong, in words."""
    parts, ends = of_kind(rows, "part"), of_kind(rows, "end")
    if not parts:
        return ["there are no rows"]
    asked_h, wrong = parts[0]["asked"]["hours"], []
    if hours_of(rows) < asked_h:
        wrong.append(f"{hours_of(rows):g} of {asked_h:g} hours: start it again")
    cut = {part["part"] for part in parts} - {end["part"] for end in ends}
    wrong += [f"part {p} was interrupted, so its numbers were not restored" for p in sorted(cut)]
    return [*wrong, *_in_quarters(of_kind(rows, "quarter")), *_at_ends(ends)]


def _in_quarters(quarters: Sequence[Row]) -> Iterator[str]:
    excused = 0.0
    for row in quarters:
        at = f"hour {row['hour']:g}"
        if row["lost"]:
            yield f"{at}: numbers that the journal does not explain: {row['lost']}"
        if "restart" in row["happened"]:
            excused = row["hour"] + 0.25  # a try after a failed one may be in the next row
        for why, count in row["skipped"].items():
            if why in OURS:
                yield f"{at}: {count:g} cycles were skipped: {why}"
            elif row["hour"] > excused:
                yield f"{at}: {count:g} cycles without an answer, and slurmctld was not stopped"
    due = QUARTER * len(quarters)
    had = sum(row["cycles"] + sum(row["skipped"].values()) for row in quarters)
    if had < FEWEST_CYCLES * due:
        yield f"{had:g} cycles in {due} minutes"


def _at_ends(ends: Sequence[Row]) -> Iterator[str]:
    for end in ends:
        name = f"part {end['part']}"
        yield from (f"{name}, restore: {what}" for what in end["restored"])
        if end["reload_failed"]:
            yield f"{name}: {end['reload_failed']} reloads were refused"
        if end["tune"] not in NIGHT_CODES:
            yield f"{name}: tune ended with {end['tune']}: {end['tune_said']}"
        yield from (f"{name}: state {state}" for state in sorted(DOUBTS & set(end["states"])))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown: what the day was, and the daemon beside slurmctld."""
    quarters, names = of_kind(rows, "quarter"), ("rltuned", "slurmctld")
    if not quarters:
        return
    did, skipped = Counter[str](), Counter[str]()
    for row in quarters:
        did.update(row["did"])
        skipped.update(row["skipped"])
    for name in ("waiting", "running", "numbers", "cycle_s"):
        values = [row[name] for row in quarters if row[name] is not None]
        yield f"{name}: {min(values):g} to {max(values):g}"
    writes, back, cycles = (
        sum(row[n] for row in quarters) for n in ("applied", "earlier", "cycles")
    )
    yield f"{cycles} cycles in {QUARTER * len(quarters)} minutes; skipped {dict(skipped)}"
    yield f"{writes} writes; an earlier number {back}; users and nodes: {dict(did)}"
    yield f"acts were late by at most {max(row['late_s'][1] for row in quarters):g} s"
    yield "\n| | rltuned | slurmctld |\n|---|---|---|"
    hours = len(quarters) / 4
    for figure, words, per in (
        ("cpu_s", "processor, seconds per hour of the day", hours),
        ("rpcs", "RPCs per minute", MINUTES * hours),
    ):
        sums = [sum(row[name][figure] for row in quarters) / per for name in names]
        yield f"| {words} | {' | '.join(f'{value:.1f}' for value in sums)} |"
    first, last = quarters[min(3, len(quarters) - 1)], quarters[-1]
    cells = [f"{first[name]['rss_mib']:g}; {last[name]['rss_mib']:g}" for name in names]
    yield f"| memory after an hour; at the end, MiB | {' | '.join(cells)} |"


def report(data: Path) -> int:
    """The table, and what is wrong."""
    rows = read(data)
    print(*table(rows), sep="\n")
    wrong = judged(rows)
    print(json.dumps({"wrong": wrong}, indent=1))
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.day", description=__doc__)
    parser.add_argument("what", choices=("run", "report"))
    for name, usual in (("hours", 24.0), ("part", 8.0), ("speed", 8.0), ("nodes", 1_000),
                        ("waiting", 3_000), ("seed", 1)):  # fmt: skip
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    parser.add_argument("--folder", type=Path, default=Path(".run/day"))
    parser.add_argument("--data", type=Path, default=Path("docs/data/day.jsonl"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the jobs of its Slurm go on
    return run(given) if given.what == "run" else report(given.data)


if __name__ == "__main__":
    sys.exit(main())
