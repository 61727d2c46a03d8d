"""Every claim of the papers beside the stored rows, and the daemon's own mode beside RLTune's."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.lab.compare import geometric, paired
from rltuned.stats import percent
from scripts.studies import delays, plays
from scripts.studies.paper import bases, qssf
from scripts.studies.paper.claimed import (
    AGAINST_BASES,
    FIGURE_16_BSLD,
    FIGURE_17_JCT,
    SLICE,
    TABLE_8,
    TESTBED,
)
from scripts.studies.paper.common import METRICS, Row
from scripts.studies.paper.peer_claims import table_7, table_9
from scripts.studies.paper.seed_claims import dl2, worl
from scripts.studies.paper.verdict import Claim, Ours, hull, measured_by, of_other_jobs, row_name
from scripts.studies.plays import known

SLURM: Final = Path("docs/data/slurm/runs.json")
NAMES: Final = {"fcfs": "FIFO", "qssf": "QSSF", "multifactor": "Slurm's multifactor"}
SITUATIONS: Final = (
    ("whole-guided", "whole", "jobs take whole nodes, as on theirs; OverSubscribe guidance"),
    ("site", "multifactor", "the order alone, where jobs share nodes"),
)
SET_JOBS: Final = 256
"""Of a set that has several seeds; the paper's 1,024 are one run, without an interval."""
DAEMON_LOADS: Final = (0.9, 1.1)
DAEMON_GROUNDS: Final = ("philly-nov-1", "philly-nov-2", "helios-venus")


def claims() -> Iterator[Claim]:
    """In the paper's order of figures, then of tables."""
    yield from _against_bases()
    yield from _table_8()
    yield from table_7()
    yield from table_9()
    yield from _against_multifactor()
    yield from _testbed()
    yield from dl2()
    yield from worl()


def named(base: str) -> str:
    """As the paper writes it."""
    return NAMES.get(base, base.upper())


# -- Cells ----------------------------------------------------------------------------------------


def _against_bases() -> Iterator[Claim]:
    for where, cluster, base, metric, claim, note in AGAINST_BASES:
        cell = f"{cluster.title()}, from {named(base)}"
        yield Claim(where, cell, metric, claim, bases.beside(cluster, base, metric), note=note)


def _table_8() -> Iterator[Claim]:
    own, base = TABLE_8["rltune"], TABLE_8["qssf"]
    other = of_other_jobs(own, base)
    for knows, words in (("site", "that predicts from earlier jobs"), ("limit", "by limits")):
        for metric in METRICS:
            contradiction = other if metric in {"wait", "jct"} else ""
            ours = qssf.beside("qssf", "philly", knows, metric)
            cell, claim = f"Philly, from QSSF {words}", own[metric] / base[metric] - 1.0
            yield Claim("Table 8", cell, metric, claim, ours, contradiction)
    long = {r: x for r, x in known(qssf.RESULTS, qssf.Run).items() if r.jobs == "long"}
    ends = [(row["change"], row["low"], row["high"]) for row in long.values()]
    ours = hull(ends, [row_name(qssf.RESULTS, run) for run in long])
    cell = f"Philly, {qssf.LONG:,} jobs, from QSSF"
    note = f"load {qssf.LONG_LOAD:g}; {SLICE}"
    yield Claim("Figure 17", cell, "jct", FIGURE_17_JCT, ours, note=note)


def _against_multifactor() -> Iterator[Claim]:
    for cluster, claim in FIGURE_16_BSLD.items():
        ours = qssf.beside("multifactor", cluster, "limit", "bsld")
        note = "theirs orders by GPUs and the trace's recorded wait"
        cell = f"{cluster.title()}, from {named('multifactor')}"
        yield Claim("Figure 16", cell, "bsld", claim, ours, note=note)


def _testbed() -> Iterator[Claim]:
    """Slurms of 13 GPUs."""
    stored = {
        (one["arm"], one["seed"]): one["figures"]
        for one in json.loads(SLURM.read_text())
        if one["jobs"] == SET_JOBS
    }
    for arm, base, words in SITUATIONS:
        seeds = sorted(s for name, s in stored if name == arm and (base, s) in stored)
        for metric, claim in TESTBED.items():
            key = "utilisation" if metric == "utilisation" else f"{metric}_s"
            own, other = ([stored[side, s][key] for s in seeds] for side in (arm, base))
            rows = [f"{SLURM}: {side}-{s}" for s in seeds for side in (arm, base)]
            ours = measured_by(geometric(own, other), len(seeds), rows)
            cell = f"testbed, `{arm}` against `{base}`"
            yield Claim("Figures 18, 19", cell, metric, claim, ours, note=words)


# -- Tables ---------------------------------------------------------------------------------------


def table() -> None:
    """Each claim with ours, the word and the reason."""
    plays.head("in the paper", "cell", "metric", "claim", "here", "word", "reason")
    for one in claims():
        ours = "not played yet"
        if one.ours is not None:
            ours = percent(one.ours.change, one.ours.low, one.ours.high, digits=1)
        cells = [one.where, one.cell, one.metric, f"{one.claim:+.1%}", ours, one.word, one.reason]
        print(plays.row_of(cells))


def as_json() -> str:
    """The same, with the rows that every cell is of."""
    found = [
        {
            "where": one.where, "cell": one.cell, "metric": one.metric, "claim": one.claim,
            **(_rounded(one.ours) if one.ours else {"change": None, "low": None, "high": None}),
            "word": one.word, "reason": one.reason,
        }
        for one in claims()
    ]  # fmt: skip
    return json.dumps({"claims": found, "daemon": list(daemon())}, indent=1)


def _rounded(ours: Ours) -> Row:
    row = asdict(ours)
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}


def daemon() -> Iterator[Row]:
    """The daemon's own mode on whole parts: cycles of 60 s, bounded delays; rows of delays.py."""
    stored = known(delays.RESULTS, delays.Run)
    for ground in DAEMON_GROUNDS:
        for load in DAEMON_LOADS:
            own = _copies(stored, ground, load, "delay", delays.OWN)
            base = _copies(stored, ground, load, "fcfs", delays.NONE)
            row: Row = {"ground": ground, "load": load, "policy": "delay", "copies": len(own)}
            for metric, key in (("wait", "wait_s"), ("bsld", "bsld")):
                sides = [np.array([r[key] for r in side]) for side in (own, base)]
                middle, low, high = paired(sides[0], sides[1], metric).known
                row[metric] = [round(middle, 4), round(low, 4), round(high, 4)]
            yield row


def _copies(
    stored: dict[delays.Run, plays.Row],
    ground: str,
    load: float,
    policy: str,
    order: tuple[float, float, float],
) -> list[plays.Row]:
    found = {
        run.copy: row
        for run, row in stored.items()
        if (run.ground, run.load, run.policy, run.limits, run.fair_d)
        == (ground, load, policy, "own", 0.0)
        and (run.own, run.share, run.max_delay_d) == order
    }
    return [found[copy] for copy in sorted(found)]


def daemon_table() -> None:
    """Changes against first come, first served, over copies."""
    plays.head("part of a trace", "load", "order", "copies", "wait", "bsld")
    for row in daemon():
        cells = [percent(*row[metric], digits=0) for metric in ("wait", "bsld")]
        names = [row["ground"], f"{row['load']:g}", f"`{row['policy']}`", row["copies"]]
        print(plays.row_of([*names, *cells]))
