"""Expected starts of waiting jobs beside their real ones: the figures of docs/how-it-works.md.

Parts of real traces are played in the daemon's cycles under Slurm's own backfill (load 0.9, first
copy). At MOMENTS spread evenly over a play, what a daemon knows then is put into a snapshot: who
waits, who runs since when, what has arrived in the last three days, and what the shipped predictor,
which has met none of these jobs, has learned from those that ended. A decision and a forecast are
made of it by the daemon's own functions, and compared with what the play did: jobs that came later,
and overtook, are in it.
Figures are of the second half of the moments; intervals are scaled by the record of all starts
before each moment. Slurm's rule plays the same queue once, by time limits.
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.features import FloatArray
from rltuned.core.forecast import HORIZON_S, Arrival, Arrivals
from rltuned.core.line import proposed_line
from rltuned.core.memory import RunTimeMemory
from rltuned.core.pools import Sizes
from rltuned.core.starts import Hindsight, Start, corrected, expected_of
from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import JobRun, PendingJob, RunningJob, Share
from rltuned.domain.snapshot import Context, RunTime, Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import feed, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.world import AGE_ONLY
from scripts.studies import data_of, plays
from scripts.studies.plays import trace_of
from scripts.studies.runner import Row, Study, head, known, row_of

RESULTS = data_of("forecasts")
POINTS = Path("docs/data/forecast-points.jsonl")
PICTURE = Path("docs/img/forecast.svg")
GROUNDS = ("philly-nov-1", "helios-venus", "thetagpu-1")
LOAD = 0.9
MOMENTS = 60
DRAWN = 150
"""Points of a trace in the picture."""
FEWEST = 3
"""Moments with fewer waiting jobs are left out."""
WINDOW_S = 3 * 86_400.0
HOUR_S = 3_600.0


@dataclass(frozen=True)
class Run:
    """One play and its forecasts."""

    ground: str
    load: float = LOAD
    moments: int = MOMENTS


class Played:
    """A play, and what a daemon would have seen of it. Jobs are numbered from 1."""

    def __init__(self, run: Run) -> None:
        self.cluster, trace = trace_of(run.ground, run.load, 1, "own")
        self.jobs = trace.jobs
        predictor = load_predictor(shipped_predictor())
        played = plays.play(
            self.cluster, self.jobs, BASELINES["delay"], predictor=predictor, backfill="slurm"
        ).played
        self.start_s, self.end_s = played.start_s, played.end_s
        self.came_s = np.array([job.submit_s for job in self.jobs])
        self._offset, self._shares = played.offset, played.shares
        self._idle = Capacity.of(self._snapshot(0.0, (), (), self.cluster.nodes))
        self._memory = RunTimeMemory(predictor.logits)
        self._memory.size_of = Sizes(self._idle).of
        self._met: dict[JobId, RunTime] = {}
        self._at = -math.inf

    def look(self, at: float) -> tuple[Snapshot, Context, dict[JobId, RunTime], Arrivals]:
        """The cluster at a moment, what is predicted of running jobs, and what has arrived."""
        ended = [
            JobRun(self._running(i), UnixTime(float(self.end_s[i])))
            for i in self._since(self.end_s, at)
        ]
        came = [self._waiting(i, at) for i in self._since(self.came_s, at)]
        feed(self._memory, came, [self._running(i) for i in self._since(self.start_s, at)], ended)
        self._at = at
        waits = np.flatnonzero((self.came_s <= at) & (self.start_s > at)).tolist()
        runs = np.flatnonzero((self.start_s <= at) & (self.end_s > at)).tolist()
        pending = tuple(self._waiting(i, at) for i in waits)
        running = tuple(self._running(i) for i in runs)
        of_running = self._memory.predicted(running)
        seen = self._snapshot(at, pending, running, self._nodes(running))
        predicted = self._memory.predicted(pending)
        context = Context(run_times=predicted, limit_use=self._memory.limit_use)
        self._met = of_running | predicted | self._met
        last = np.flatnonzero((self.came_s <= at) & (self.came_s > at - WINDOW_S)).tolist()
        arrivals = Arrivals(
            tuple(
                Arrival(self._waiting(i, at), at - self.came_s[i], self._met.get(JobId(i + 1)))
                for i in last
            ),
            min(WINDOW_S, at - float(self.came_s[0])),
        )
        return seen, context, of_running, arrivals

    def started(self, since: float, at: float) -> tuple[RunningJob, ...]:
        """Jobs that have started between two moments, whether or not they run still."""
        found = np.flatnonzero((self.start_s > since) & (self.start_s <= at))
        return tuple(self._running(i) for i in found.tolist())

    def _since(self, times: FloatArray, at: float) -> list[int]:
        found: list[int] = np.flatnonzero((times > self._at) & (times <= at)).tolist()
        return found

    def _snapshot(
        self,
        at: float,
        pending: tuple[PendingJob, ...],
        running: tuple[RunningJob, ...],
        nodes: tuple[Node, ...],
    ) -> Snapshot:
        return Snapshot(
            UnixTime(at), "c", pending, running, nodes, self.cluster.partitions,
            priorities=AGE_ONLY.system,
        )  # fmt: skip

    def _nodes(self, running: tuple[RunningJob, ...]) -> tuple[Node, ...]:
        used: dict[str, Resources] = {}
        for share in (share for run in running for share in run.shares):
            used[share.node] = used.get(share.node, Resources()) + share.taken
        nodes = []
        for node in self.cluster.nodes:
            free = node.total - used.get(node.name, Resources())
            gpus = tuple(replace(one, free=free.gpus) for one in node.gpus)  # of one type each
            nodes.append(replace(node, free=free, gpus=gpus))
        return tuple(nodes)

    def _waiting(self, number: int, at: float) -> PendingJob:
        job = self.jobs[number]
        waited_s = max(0.0, at - job.submit_s)
        priority = AGE_ONLY.priority(
            number=number + 1, waited_s=waited_s, size_share=0.0, partition_share=0.0
        )
        came_at = UnixTime(job.submit_s)
        return PendingJob(
            JobId(number + 1), str(number + 1), came_at, job.request(), priority,
            (job.partition or self.cluster.default_partition,), eligible_at=came_at,
            user=job.user, account=job.account, qos=job.qos, site_factor=0, reason="Priority",
        )  # fmt: skip

    def _running(self, number: int) -> RunningJob:
        job, held = self.jobs[number], self._shares
        shares = []
        for at in range(self._offset[number], self._offset[number + 1]):
            node, row = self.cluster.nodes[held.node[at]], int(held.row[at])
            taken = Resources(int(held.gpus[at]), int(held.cpus[at]), int(held.mem_mib[at]))
            whole = row < 0
            kind = node.gpus[0].gpu_type if whole else None
            shares.append(Share(node.name, node.total if whole else taken, kind))
        return RunningJob(
            JobId(number + 1), UnixTime(float(self.start_s[number])), job.request(), tuple(shares),
            partition=job.partition or self.cluster.default_partition, user=job.user,
            account=job.account, qos=job.qos, submitted_at=UnixTime(job.submit_s),
        )  # fmt: skip


def by_limits(decision: Decision) -> dict[JobId, Start]:
    """Slurm's rule: the same order, played once with every job as long as its limit."""
    seen = decision.snapshot

    def whole(limit_s: float | None) -> RunTime:
        run_s = min(limit_s or math.inf, HORIZON_S)
        return RunTime(run_s, run_s, run_s, run_s, run_s, 1)

    pending = {job.job_id: whole(job.request.time_limit_s) for job in seen.pending}
    running = {run.job_id: whole(run.request.time_limit_s) for run in seen.running}
    alone = replace(decision, context=replace(decision.context, run_times=pending))
    return dict(expected_of(proposed_line(alone), running, draws=1).starts)


@dataclass(frozen=True)
class Point:
    """One forecast and the real start, hours from the moment. limit_h: by Slurm's rule."""

    ground: str
    real_h: float
    low_h: float
    median_h: float
    high_h: float
    limit_h: float
    within_raw: bool
    later: bool


def points(run: Run) -> tuple[list[Point], Row]:
    """All forecasts of a run, and what they cost."""
    played, record = Played(run), Hindsight()
    first, last = float(played.came_s[0]), float(played.came_s[-1])
    found: list[Point] = []
    spent, queue, before = [], [], first
    moments = np.linspace(first, last, run.moments + 4)[3:-1]
    for at in moments.tolist():
        seen, context, of_running, arrivals = played.look(at)
        record.look(replace(seen, running=played.started(before, at)))
        before = at
        if len(seen.pending) < FEWEST:
            continue
        decision = decide(seen, BASELINES["delay"], Knobs(top_k=0), context=context)
        began = time.process_time()
        raw = expected_of(proposed_line(decision), of_running, arrivals).starts.values()
        spent.append(time.process_time() - began)
        queue.append(len(seen.pending))
        scales, slurm = record.scales(at), by_limits(decision)
        record.note(raw, seen, scales)
        for one in raw:
            real_s = float(played.start_s[one.job_id - 1]) - at
            shown, rule = corrected(one, scales), slurm[one.job_id].median_s
            interval = (shown.low_s, shown.median_s, shown.high_s)
            real, low, median, high, limit = map(_hours, (real_s, *interval, rule))
            within = _hours(one.low_s) <= real <= _hours(one.high_s)
            later = at >= float(np.median(moments))
            found.append(Point(run.ground, real, low, median, high, limit, within, later))
    cost = {"cpu_s": float(np.mean(spent)), "cpu_most_s": max(spent), "queue": max(queue)}
    return found, {**cost, "made": len(spent)}


def _hours(seconds: float | None) -> float:
    return HORIZON_S / HOUR_S if seconds is None else min(seconds, HORIZON_S) / HOUR_S


def figures(found: list[Point]) -> Row:
    """Of the second half of the moments."""
    late = [one for one in found if one.later]
    within = [one.low_h <= one.real_h <= one.high_h for one in late]
    return {
        "forecasts": len(late),
        "coverage": float(np.mean(within)),
        "coverage_raw": float(np.mean([one.within_raw for one in late])),
        "error_h": float(np.median([abs(one.median_h - one.real_h) for one in late])),
        "limits_error_h": float(np.median([abs(one.limit_h - one.real_h) for one in late])),
        "real_h": float(np.median([one.real_h for one in late])),
        "width": float(np.median([(o.high_h + 1 / 6) / (o.low_h + 1 / 6) for o in late])),
    }


def play(run: Run) -> Row:
    found, cost = points(run)
    others = [one for one in known(POINTS, Point) if one.ground != run.ground]
    late = [one for one in found if one.later]
    drawn = np.random.default_rng(1).permutation(len(late))[:DRAWN]
    kept = map(asdict, (*others, *(late[i] for i in sorted(drawn.tolist()))))
    rows = ({k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in one.items()}
            for one in kept)  # fmt: skip
    POINTS.write_text("".join(json.dumps(row) + "\n" for row in rows))  # a picture needs no more
    return asdict(run) | figures(found) | cost


def rows() -> Iterator[str]:
    """Coverage and errors, a row for each trace."""
    yield head("trace", "forecasts", "real starts in the 80% interval",
               "before the record corrects", "median error", "by time limits", "ratio",
               "median wait left", "processor")  # fmt: skip
    for run, row in known(RESULTS, Run).items():
        cells = (
            run.ground, int(row["forecasts"]), f"{row['coverage']:.0%}",
            f"{row['coverage_raw']:.0%}", f"{row['error_h']:.1f} h",
            f"{row['limits_error_h']:.1f} h", row["error_h"] / row["limits_error_h"],
            f"{row['real_h']:.1f} h", f"{row['cpu_s']:.1f} s, at most {row['cpu_most_s']:.0f} s",
        )  # fmt: skip
        yield row_of(cells)


def draw() -> None:
    """Expected and real starts, by the forecast and by limits."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "rltuned"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, len(GROUNDS), figsize=(11, 4), sharex=True, sharey=True)
    every = list(known(POINTS, Point))
    rows_of = {run.ground: row for run, row in known(RESULTS, Run).items()}
    for axis, ground in zip(axes, GROUNDS, strict=True):
        mine = [one for one in every if one.ground == ground]
        real = np.array([one.real_h for one in mine]) + 0.1
        for values, colour, name in (
            ([one.limit_h for one in mine], "#b0b0b0", "by time limits"),
            ([one.median_h for one in mine], "#1f6feb", "forecast"),
        ):
            axis.plot(np.array(values) + 0.1, real, ".", ms=3, color=colour, label=name)
        axis.plot([0.1, 2_000], [0.1, 2_000], color="black", lw=0.8)
        axis.set(xscale="log", yscale="log", title=ground, xlabel="expected start, h + 0.1")
        inside = f"{rows_of[ground]['coverage']:.0%} within the interval"
        axis.text(0.05, 0.92, inside, transform=axis.transAxes)
    axes[0].set_ylabel("real start, h + 0.1")
    axes[-1].legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


STUDIES = {
    "forecasts": Study(
        lambda _: map(Run, GROUNDS), play, {"table": lambda: print(*rows(), sep="\n"), "draw": draw}
    )
}
