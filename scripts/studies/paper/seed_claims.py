"""The claims of DL2 (2019) and WORL-RTGS (2025) beside stored rows.

Neither plays what a Slurm priority daemon can do. DL2 gives running jobs more or fewer workers;
here their size is the user's, and what is left of DL2 is that PPO begins as the site's present
order. WORL-RTGS plans one group on machines that run a task each, and compares itself with
learners; here the base is HEFT, or a queue that knows no types.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from scripts.studies import planners
from scripts.studies.paper import bases, peers, qssf, transfer
from scripts.studies.paper.common import CLUSTERS, SETTINGS, Row, change
from scripts.studies.paper.verdict import Claim, Ours, hull, measured_by, row_name
from scripts.studies.plays import known

RIGID: Final = "theirs resizes running jobs, which shortens run times; an order changes waits alone"
DL2: Final = {
    "fcfs": (7.12 / 14.22 - 1.0, ""),
    "sjf": (-0.413, f"its own figures have {8.56 / 13.61 - 1.0:+.1%}"),
}
"""Completion time after PPO over that of the imitated order, and what contradicts it."""
DL2_DRF: Final = -0.441
DL2_OFFLINE: Final = -0.379
DL2_OPTIMUS: Final = (-0.175, f"its own figures have {5.724 / 7.318 - 1.0:+.1%}")
WORL: Final = (
    ("best of 470 comparisons, RL-Hybrid", -0.6656, "first free"),
    ("mean against RL-Hybrid, its weakest peer", -0.324, "first free"),
    ("mean against DRAS, its strongest peer", -0.079, "heft"),
)
"""Words, claim, and the planner that stands here for the peer."""


def dl2() -> Iterator[Claim]:
    """Warm start and PPO after it against the order that was imitated, cluster by cluster."""
    for cluster in CLUSTERS:
        name = cluster.title()
        for base, (claim, bad) in DL2.items():
            ours = bases.beside(cluster, base, "jct")
            cell = f"{name}, imitated {base.upper().replace('FCFS', 'FIFO')}, then PPO"
            yield Claim("DL2, text", cell, "jct", claim, ours, bad, RIGID)
        cell = f"{name}, against the existing scheduler (DRF; here multifactor)"
        ours = qssf.beside("multifactor", cluster, "limit", "jct")
        yield Claim("DL2, abstract", cell, "jct", DL2_DRF, ours, note=RIGID)
        cell = f"{name}, trained there against trained elsewhere"
        ours = _own_against_others(cluster)
        yield Claim("DL2, abstract", cell, "jct", DL2_OFFLINE, ours, note=RIGID)
    claim, bad = DL2_OPTIMUS
    none = "nothing here resizes jobs"
    yield Claim("DL2, abstract", "against Optimus", "jct", claim, None, bad, none)


def worl() -> Iterator[Claim]:
    """Makespans of groups, run times known exactly."""
    stored = {r: row for r, row in known(planners.RESULTS, planners.Run).items() if not r.error}
    rows, names = list(stored.values()), [row_name(planners.RESULTS, run) for run in stored]
    for words, claim, base in WORL:
        for own in ("worl", "woa-ddqn"):
            seeds = len(planners.SEEDS)
            ours = measured_by(planners.over(rows, own, base), seeds, names) if rows else None
            peer = {"heft": "HEFT", "first free": "the first free GPU"}[base]
            cell = f"{words}; here `{own}` against {peer}"
            yield Claim("WORL-RTGS", cell, "makespan", claim, ours, note=_note(own))


def _note(own: str) -> str:
    return "HEFT is among the first whales" if own == "woa-ddqn" else "the pair alone, as theirs"


def _own_against_others(cluster: str) -> Ours | None:
    """Of the actors from FIFO; those of other clusters are the seeds."""
    own = peers.Run(cluster, "rltune", 1, SETTINGS.epochs)
    stored: Mapping[peers.Run, Row] = known(peers.RESULTS, peers.Run)
    elsewhere: Mapping[transfer.Run, Row] = known(transfer.RESULTS, transfer.Run)
    other = {
        run: row
        for run, row in elsewhere.items()
        if (run.cluster, run.trained_from, run.seed) == (cluster, "fcfs", 1)
        and run.trained_on != cluster
    }
    if own not in stored or not other:
        return None
    found = [change([stored[own]["jct"]], row["jct"], "jct").known for row in other.values()]
    names = [row_name(transfer.RESULTS, run) for run in other]
    return hull(found, [row_name(peers.RESULTS, own), *names])
