"""The claims of Tables 7 and 9, and of the sentences that rest on them."""

from collections.abc import Iterator, Mapping
from typing import Final

from scripts.studies.paper import peers, transfer
from scripts.studies.paper.claimed import SLICE, TABLE_7, TABLE_9
from scripts.studies.paper.common import METRICS, Row, change
from scripts.studies.paper.verdict import Claim, Ours, across, measured_by, of_other_jobs, row_name
from scripts.studies.plays import known

NAMES: Final = {
    "schedinspector": "SchedInspector",
    "rlscheduler": "RLScheduler",
    "rltune": "RLTune",
}
SENTENCES: Final = (
    ("philly", "conclusion: wait against RLScheduler", -0.35),
    ("helios", "section 5: wait against RLScheduler", -0.433),
)
"""Cluster, words, claim; the table says something else."""
Stored = Mapping[peers.Run, Row]


def table_7() -> Iterator[Claim]:
    """Off its diagonal."""
    stored: Mapping[transfer.Run, Row] = known(transfer.RESULTS, transfer.Run)
    for own, cells in TABLE_7.items():
        for other, claim in cells.items():
            found = {
                run: row
                for run, row in stored.items()
                if (run.trained_on, run.trained_from) == ("helios", own)
                and (run.cluster, run.against) == ("helios", other)
            }
            ours = across(transfer.RESULTS, found, "wait")
            cell = f"Helios, trained from {own.upper()}, against {other.upper()}"
            yield Claim("Table 7", cell.replace("FCFS", "FIFO"), "wait", claim, ours)


def table_9() -> Iterator[Claim]:
    """Each learner against FIFO, RLTune against RLScheduler, and what is said of them."""
    stored: Stored = known(peers.RESULTS, peers.Run)
    for cluster, rows in TABLE_9.items():
        for peer, words in NAMES.items():
            for metric in METRICS:
                cell = f"{cluster.title()}, {words} against FIFO"
                yield _claimed(stored, (cluster, cell, metric), (peer, peers.BASE), rows)
        for metric in ("wait", "bsld"):
            cell = f"{cluster.title()}, RLTune against RLScheduler"
            yield _claimed(stored, (cluster, cell, metric), ("rltune", "rlscheduler"), rows)
    for cluster, cell, claim in SENTENCES:
        rows = TABLE_9[cluster]
        in_table = rows["rltune"]["wait"] / rows["rlscheduler"]["wait"] - 1.0
        ours = _of(stored, cluster, ("rltune", "rlscheduler"), "wait")
        bad = f"Table 9 has {in_table:+.1%}"
        yield Claim("text", f"{cluster.title()}, {cell}", "wait", claim, ours, bad)


def _claimed(
    stored: Stored, what: tuple[str, str, str], sides: tuple[str, str], rows: dict[str, Row]
) -> Claim:
    cluster, cell, metric = what
    own, base = (rows[side] for side in sides)
    bad = of_other_jobs(own, base) if metric in {"wait", "jct"} else ""
    ours = _of(stored, cluster, sides, metric)
    note = SLICE if cluster == "philly" and sides[0] == "rltune" and not bad else ""
    return Claim("Table 9", cell, metric, own[metric] / base[metric] - 1.0, ours, bad, note)


def _of(stored: Stored, cluster: str, sides: tuple[str, str], metric: str) -> Ours | None:
    """Seeds of both sides are paired in their order; of FIFO there is one."""
    found = [_seeds(stored, cluster, side) for side in sides]
    if not all(found):
        return None
    own, base = found
    compared = change(
        [row[metric] for row in own.values()], next(iter(base.values()))[metric], metric
    )
    names = [row_name(peers.RESULTS, run) for run in (*own, *base)]
    return measured_by(compared, len(own), names)


def _seeds(stored: Stored, cluster: str, peer: str) -> dict[peers.Run, Row]:
    return {run: row for run, row in stored.items() if (run.cluster, run.peer) == (cluster, peer)}
