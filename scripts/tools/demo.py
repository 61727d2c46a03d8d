"""`make demo`: a day of generated jobs, played twice through the same simulated Slurm.

Once in Slurm's own order and once with the daemon's decision every minute. Nothing outside this
process is touched. The same seed gives the same lines.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Final

from rltuned.core.order import Policy
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.protocol import DEFAULT, Protocol
from rltuned.lab.replay.trace_file import scale
from rltuned.policies.plugins import policy_named
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Natural, Rules, Run, World
from rltuned.text import span

CLUSTER, GPUS, LOAD, JOBS, HOUR_S = "philly-192", 192, 0.9, 1_200, 3_600.0
CLASSES: Final = (("up to 1 h", HOUR_S), ("up to 12 h", 12 * HOUR_S), ("longer", math.inf))
SHOWN: Final = 3
"""Jobs that are named of those that gain most, and of those that lose most."""

Waits = Mapping[int, float]
"""Seconds, by number."""


def play(jobs: Sequence[TraceJob]) -> tuple[Waits, Waits, int]:
    """The waits in Slurm's own order and with rltuned, and how often it decided."""
    rules, cluster = Rules(natural=Natural(kind="multifactor")), preset(CLUSTER)
    own, ours = (World(cluster, jobs, rules=rules) for _ in range(2))
    while own.next_time() is not None:
        own.step()
    policy: Policy = policy_named(DEFAULT.name, trust=DEFAULT.trust)
    decided = DecidedWorld(ours, Protocol(mode="cycle")).play(policy)
    return waits_of(own.finished), waits_of(decided.world.finished), decided.decisions


def waits_of(finished: Mapping[int, Run]) -> Waits:
    """By the number of a job, which is its place in the trace, from 1."""
    return {number: one.started_at - one.job.submit_s for number, one in finished.items()}


def lines(jobs: Sequence[TraceJob], own: Waits, ours: Waits, decisions: int) -> list[str]:
    """What is printed."""
    hours = (jobs[-1].submit_s - jobs[0].submit_s) / HOUR_S
    head = f"{'mean wait of jobs with limits':31}{'jobs':>6}{'Slurm alone':>14}{'with rltuned':>14}"
    found = [
        f"{len(jobs)} generated jobs of {hours:.0f} hours, like those of Microsoft's Philly,",
        f"on {GPUS} GPUs at load {LOAD}, twice through the same simulated Slurm.",
        f"rltuned decided {decisions} times, once a minute while jobs waited. No Slurm is touched.",
        "",
        head,
    ]
    low = 0.0
    for name, high in CLASSES:
        those = [n for n, job in enumerate(jobs, 1) if low < (job.time_limit_s or math.inf) <= high]
        if those:
            found.append(_row(name, those, own, ours))
        low = high
    found += [_row("all", list(own), own, ours), ""]
    gains = sorted(own, key=lambda n: ours[n] - own[n])
    found.append("Gained most, and lost most:")
    for n in [*gains[:SHOWN], *gains[-SHOWN:]]:
        job = jobs[n - 1]
        limit = "no limit" if job.time_limit_s is None else f"limit {span(job.time_limit_s)}"
        gpus = f"{job.gpus} GPU{'' if job.gpus == 1 else 's'}"
        found.append(f"  job {n:<5} {gpus:8} {limit:15} {span(own[n]):>7} -> {span(ours[n])}")
    return [*found, "", *_end(own, ours)]


def _row(name: str, those: Sequence[int], own: Waits, ours: Waits) -> str:
    before, after = (span(_mean([waits[n] for n in those])) for waits in (own, ours))
    return f"  {name:29}{len(those):>6}{before:>14}{after:>14}"


def _end(own: Waits, ours: Waits) -> list[str]:
    before, after = _mean(list(own.values())), _mean(list(ours.values()))
    change = after / before - 1
    much = f"{abs(change):.0%} {'less' if change < 0 else 'more'}"
    longest = f"from {span(max(own.values()))} to {span(max(ours.values()))}"
    return [
        f"A job waited {span(before)} on average under Slurm alone and {span(after)} with rltuned:",
        f"{much}. The longest wait went {longest}.",
        "This is one seed of generated jobs. Real traces, and where it does not help:",
        "docs/results.md.",
        "Next: `rltuned backtest` plays your own accounting (docs/backtest.md), and",
        "`rltuned plan` shows what would change in your queue; it writes nothing.",
    ]


def _mean(waits: Sequence[float]) -> float:
    return sum(waits) / len(waits)


def main() -> None:
    """Play, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    jobs = scale(synthesize("philly-like", jobs=asked.jobs, seed=asked.seed), LOAD, GPUS).jobs
    print(*lines(jobs, *play(jobs)), sep="\n")


if __name__ == "__main__":
    main()
