"""What the papers claim beside the stored rows, and one word that a rule says of both.

All figures are changes, own / base - 1: -0.4 = 40% less. Less is better but for utilisation.

| word               | where                                                           |
|--------------------|-----------------------------------------------------------------|
| claim inconsistent | the paper's own figures contradict the claim, whatever ours are |
| better             | the whole 95% interval is better than the claim                 |
| not reproduced     | the whole 95% interval is worse than the claim                  |
| reproduced         | the interval holds the claim                                    |

DL2 (2019) gives running jobs more or fewer workers; here their size is the user's, and what is left
of it is that PPO begins as the site's present order. WORL-RTGS (2025) plans one group on machines
that run a task each; here the base is HEFT, or a queue that knows no types. Its rows were played by
scripts/studies/planners.py of commit 2fb3ad10.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from rltuned.lab.compare import LARGER_IS_BETTER, Change, geometric, paired
from rltuned.stats import percent
from scripts.studies import delays
from scripts.studies.paper import bases, claimed, parts
from scripts.studies.paper.common import CLUSTERS, METRICS, SETTINGS, change
from scripts.studies.paper.parts import QSSF, TRANSFER, Beside, Peer, Transfer
from scripts.studies.runner import Row, head, known, row_of

SLURM, PLANNERS = Path("docs/data/slurm/runs.json"), Path("docs/data/planners.jsonl")
NAMES: Final = {"fcfs": "FIFO", "qssf": "QSSF", "multifactor": "Slurm's multifactor"}
LEARNERS: Final = {"schedinspector": "SchedInspector", "rlscheduler": "RLScheduler",
                   "rltune": "RLTune"}  # fmt: skip
SET_JOBS: Final = 256
"""Of a set that has several seeds; the paper's 1,024 are one run, without an interval."""
DAEMON_LOADS: Final = (0.9, 1.1)
DAEMON_GROUNDS: Final = ("philly-nov-1", "philly-nov-2", "helios-venus")
SAME_JOBS: Final = 0.01
"""Mean run times of two rows differ by no more if both are of the same jobs."""
Word = Literal["reproduced", "better", "not reproduced", "claim inconsistent", "not played"]


@dataclass(frozen=True)
class Ours:
    """A change with its 95% interval over so many seeds. rows: the stored ones that it is of."""

    change: float
    low: float
    high: float
    seeds: int
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """One cell. contradiction: of the paper's own figures; note: why ours may differ."""

    where: str
    cell: str
    metric: str
    claim: float
    ours: Ours | None
    contradiction: str = ""
    note: str = ""

    @property
    def word(self) -> Word:
        """By the rule above."""
        if self.contradiction:
            return "claim inconsistent"
        if self.ours is None:
            return "not played"
        low, high, claim = self._less_is_better(self.ours)
        if high < claim:
            return "better"
        return "not reproduced" if low > claim else "reproduced"

    @property
    def reason(self) -> str:
        """What the interval says, and why."""
        said = (self.contradiction, self._seen(), self.note)
        return "; ".join(part for part in said if part)

    def _seen(self) -> str:
        if self.ours is None:
            return "not played yet"
        low, high, claim = self._less_is_better(self.ours)
        gain = "a gain" if high < 0.0 else "a loss" if low > 0.0 else "no proven change"
        if self.contradiction:
            return f"ours: {gain}"
        if high < claim:
            return "the whole interval is better than the claim"
        if low > claim:
            return f"ours: {gain}, worse than the claim"
        return "the interval holds the claim" + ("" if low * high > 0.0 else ", and no change")

    def _less_is_better(self, ours: Ours) -> tuple[float, float, float]:
        """Low, high, claim."""
        if self.metric in LARGER_IS_BETTER:
            return -ours.high, -ours.low, -self.claim
        return ours.low, ours.high, self.claim


def row_name(results: Path, run: object) -> str:
    """Of a stored row."""
    return f"{results}: {', '.join(str(cell) for cell in vars(run).values())}"


def measured_by(found: Change, seeds: int, rows: Sequence[str]) -> Ours:
    """Of a comparison that has an interval. Raises ValueError: it has none."""
    change, low, high = found.known
    return Ours(change, low, high, seeds, tuple(rows))


def across(results: Path, found: Mapping[Any, Row], metric: str) -> Ours | None:
    """Stored runs that differ in their seed alone, each with its base's figures on the same
    windows. None: there are none.
    """
    if not found:
        return None
    rows = list(found.values())
    compared = change([row[metric] for row in rows], rows[0][f"base_{metric}"], metric)
    return measured_by(compared, len(rows), [row_name(results, run) for run in found])


def hull(seeds: Sequence[tuple[float, float, float]], rows: Sequence[str]) -> Ours | None:
    """The mean change of seeds, each with its interval, and the interval that holds all of them:
    where only a change is kept per seed, how seeds and windows vary together is not known.
    """
    if not seeds:
        return None
    changes, lows, highs = zip(*seeds, strict=True)
    return Ours(float(np.mean(changes)), min(lows), max(highs), len(seeds), tuple(rows))


def of_other_jobs(own: Mapping[str, float], base: Mapping[str, float]) -> str:
    """Why two rows of absolute figures are not of the same jobs: completion time less wait is the
    mean run time, whoever orders. Empty: they may be.
    """
    run_s, other_s = (row["jct"] - row["wait"] for row in (own, base))
    if abs(run_s / other_s - 1.0) <= SAME_JOBS:
        return ""
    return f"the rows' mean run times differ: {run_s:,.0f} s and {other_s:,.0f} s"


def chosen(stored: Mapping[Any, Row], **asked: object) -> dict[Any, Row]:
    """The runs that are so."""
    return {run: row for run, row in stored.items() if asked.items() <= vars(run).items()}


def from_base(cluster: str, base: str, metric: str) -> Ours | None:
    """The actors of all seeds against their base."""
    found = chosen(known(bases.RESULTS, bases.Run), cluster=cluster, base=base)
    rows = [row_name(bases.RESULTS, run) for run in found]
    return hull([bases.ends(row, metric) for row in found.values()], rows)


def beside(rule: str, cluster: str, knows: str, metric: str) -> Ours | None:
    """The actor against a rule, on windows."""
    asked = {"rule": rule, "cluster": cluster, "knows": knows, "jobs": "windows"}
    return across(QSSF, chosen(known(QSSF, Beside), **asked), metric)


def peer(cluster: str, own: str, base: str, metric: str) -> Ours | None:
    """Seeds of both sides are paired in their order; of FIFO there is one."""
    stored = known(parts.PEERS, Peer)
    sides = [chosen(stored, cluster=cluster, peer=name) for name in (own, base)]
    if not all(sides):
        return None
    first = next(iter(sides[1].values()))[metric]
    compared = change([row[metric] for row in sides[0].values()], first, metric)
    rows = [row_name(parts.PEERS, run) for side in sides for run in side]
    return measured_by(compared, len(sides[0]), rows)


def own_against_others(cluster: str) -> Ours | None:
    """The actor from FIFO against those of other clusters, which are the seeds."""
    own = Peer(cluster, "rltune", 1, SETTINGS.epochs)
    stored = known(parts.PEERS, Peer)
    other = chosen(known(TRANSFER, Transfer), cluster=cluster, trained_from="fcfs", seed=1)
    other = {run: row for run, row in other.items() if run.trained_on != cluster}
    if own not in stored or not other:
        return None
    found = [change([stored[own]["jct"]], row["jct"], "jct").known for row in other.values()]
    names = [row_name(TRANSFER, run) for run in other]
    return hull(found, [row_name(parts.PEERS, own), *names])


def claims() -> Iterator[Claim]:
    """In the paper's order of figures, then of tables."""
    for where, cluster, base, metric, claim, note in claimed.AGAINST_BASES:
        cell = f"{cluster.title()}, from {named(base)}"
        yield Claim(where, cell, metric, claim, from_base(cluster, base, metric), note=note)
    yield from _table_8()
    stored = known(TRANSFER, Transfer)
    for own, cells in claimed.TABLE_7.items():
        for other, claim in cells.items():
            asked = {"trained_on": "helios", "trained_from": own, "cluster": "helios"}
            ours = across(TRANSFER, chosen(stored, **asked, against=other), "wait")
            cell = f"Helios, trained from {named(own)}, against {named(other)}"
            yield Claim("Table 7", cell, "wait", claim, ours)
    yield from _table_9()
    for cluster, claim in claimed.FIGURE_16_BSLD.items():
        ours = beside("multifactor", cluster, "limit", "bsld")
        note = "theirs orders by GPUs and the trace's recorded wait"
        cell = f"{cluster.title()}, from {named('multifactor')}"
        yield Claim("Figure 16", cell, "bsld", claim, ours, note=note)
    yield from _testbed()
    yield from _dl2()
    yield from _worl()


def named(base: str) -> str:
    """As the paper writes it."""
    return NAMES.get(base, base.upper())


def _table_8() -> Iterator[Claim]:
    own, base = claimed.TABLE_8["rltune"], claimed.TABLE_8["qssf"]
    for knows, words in (("site", "that predicts from earlier jobs"), ("limit", "by limits")):
        for metric in METRICS:
            bad = of_other_jobs(own, base) if metric in {"wait", "jct"} else ""
            ours, cell = beside("qssf", "philly", knows, metric), f"Philly, from QSSF {words}"
            yield Claim("Table 8", cell, metric, own[metric] / base[metric] - 1.0, ours, bad)
    long = chosen(known(QSSF, Beside), jobs="long")
    ends = [(row["change"], row["low"], row["high"]) for row in long.values()]
    cell, note = (
        f"Philly, {parts.LONG:,} jobs, from QSSF",
        f"load {parts.LONG_LOAD:g}; {claimed.SLICE}",
    )
    ours = hull(ends, [row_name(QSSF, run) for run in long])
    yield Claim("Figure 17", cell, "jct", claimed.FIGURE_17_JCT, ours, note=note)


def _table_9() -> Iterator[Claim]:
    """Each learner against FIFO, RLTune against RLScheduler, and what is said of them."""
    for cluster, rows in claimed.TABLE_9.items():
        sides = [(name, "fcfs", metric) for name in LEARNERS for metric in METRICS]
        sides += [("rltune", "rlscheduler", metric) for metric in ("wait", "bsld")]
        for own, base, metric in sides:
            bad = of_other_jobs(rows[own], rows[base]) if metric in {"wait", "jct"} else ""
            note = claimed.SLICE if (cluster, own) == ("philly", "rltune") and not bad else ""
            cell = f"{cluster.title()}, {LEARNERS[own]} against {LEARNERS.get(base, 'FIFO')}"
            claim = rows[own][metric] / rows[base][metric] - 1.0
            ours = peer(cluster, own, base, metric)
            yield Claim("Table 9", cell, metric, claim, ours, bad, note)
    for cluster, cell, claim in claimed.SENTENCES:
        rows = claimed.TABLE_9[cluster]
        in_table = rows["rltune"]["wait"] / rows["rlscheduler"]["wait"] - 1.0
        ours = peer(cluster, "rltune", "rlscheduler", "wait")
        bad = f"Table 9 has {in_table:+.1%}"
        yield Claim("text", f"{cluster.title()}, {cell}", "wait", claim, ours, bad)


def _testbed() -> Iterator[Claim]:
    """Slurms of 13 GPUs."""
    stored = {
        (one["arm"], one["seed"]): one["figures"]
        for one in json.loads(SLURM.read_text())
        if one["jobs"] == SET_JOBS
    }
    for arm, base, words in claimed.SITUATIONS:
        seeds = sorted(s for name, s in stored if name == arm and (base, s) in stored)
        for metric, claim in claimed.TESTBED.items():
            key = "utilisation" if metric == "utilisation" else f"{metric}_s"
            own, other = ([stored[side, s][key] for s in seeds] for side in (arm, base))
            rows = [f"{SLURM}: {side}-{s}" for s in seeds for side in (arm, base)]
            ours = measured_by(geometric(own, other), len(seeds), rows)
            cell = f"testbed, `{arm}` against `{base}`"
            yield Claim("Figures 18, 19", cell, metric, claim, ours, note=words)


def _dl2() -> Iterator[Claim]:
    """Warm start and PPO after it against the order that was imitated, cluster by cluster."""
    for cluster in CLUSTERS:
        name = cluster.title()
        for base, (claim, bad) in claimed.DL2.items():
            ours, cell = from_base(cluster, base, "jct"), f"imitated {named(base)}, then PPO"
            yield Claim("DL2, text", f"{name}, {cell}", "jct", claim, ours, bad, claimed.RIGID)
        cell = f"{name}, against the existing scheduler (DRF; here multifactor)"
        ours = beside("multifactor", cluster, "limit", "jct")
        yield Claim("DL2, abstract", cell, "jct", claimed.DL2_DRF, ours, note=claimed.RIGID)
        cell, ours = f"{name}, trained there against trained elsewhere", own_against_others(cluster)
        yield Claim("DL2, abstract", cell, "jct", claimed.DL2_OFFLINE, ours, note=claimed.RIGID)
    claim, bad = claimed.DL2_OPTIMUS
    none = "nothing here resizes jobs"
    yield Claim("DL2, abstract", "against Optimus", "jct", claim, None, bad, none)


@dataclass(frozen=True)
class Group:
    """One group of jobs of a shape, whose planners saw run times that are off by an error."""

    kind: str
    seed: int
    error: float


def _worl() -> Iterator[Claim]:
    """Makespans of groups, run times known exactly."""
    stored = chosen(known(PLANNERS, Group), error=0.0)
    seeds = len({group.seed for group in stored})
    for words, claim, base in claimed.WORL:
        for own in ("worl", "woa-ddqn"):
            sides = ([row[name] for row in stored.values()] for name in (own, base))
            rows = [row_name(PLANNERS, group) for group in stored]
            against = {"heft": "HEFT", "first free": "the first free GPU"}[base]
            first = "HEFT is among the first whales"
            yield Claim(
                "WORL-RTGS", f"{words}; here `{own}` against {against}", "makespan", claim,
                measured_by(geometric(*sides), seeds, rows),
                note=first if own == "woa-ddqn" else "the pair alone, as theirs",
            )  # fmt: skip


def table() -> str:
    """Each claim with ours, the word and the reason; and the daemon's own mode."""
    lines = [head("in the paper", "cell", "metric", "claim", "here", "word", "reason")]
    for one in claims():
        ours = "not played yet"
        if one.ours is not None:
            ours = percent(one.ours.change, one.ours.low, one.ours.high, digits=1)
        cells = [one.where, one.cell, one.metric, f"{one.claim:+.1%}", ours, one.word, one.reason]
        lines.append(row_of(cells))
    lines += ["", head("part of a trace", "load", "order", "copies", "wait", "bsld")]
    for row in daemon():
        cells = [row["ground"], f"{row['load']:g}", f"`{row['policy']}`", row["copies"]]
        lines.append(row_of([*cells, *(percent(*row[m], digits=0) for m in ("wait", "bsld"))]))
    return "\n".join(lines)


def as_json() -> str:
    """The same, with the rows that every cell is of."""
    none: Row = {"change": None, "low": None, "high": None}

    def rounded(ours: Ours) -> Row:
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(ours).items()}

    found = [
        {
            "where": one.where, "cell": one.cell, "metric": one.metric, "claim": one.claim,
            **(rounded(one.ours) if one.ours else none),
            "word": one.word, "reason": one.reason,
        }
        for one in claims()
    ]  # fmt: skip
    return json.dumps({"claims": found, "daemon": list(daemon())}, indent=1)


def daemon() -> Iterator[Row]:
    """The daemon's own mode on whole parts: cycles of 60 s, bounded delays; rows of delays.py."""
    stored = known(delays.RESULTS, delays.Run)

    def copies(ground: str, load: float, policy: str, order: tuple[float, ...]) -> list[Row]:
        bounds = dict(zip(("own", "share", "max_delay_d"), order, strict=True))
        asked = {"ground": ground, "load": load, "policy": policy, "limits": "own", **bounds}
        found = chosen(stored, **asked)
        return [found[run] for run in sorted(found, key=lambda run: int(run.copy))]

    for ground in DAEMON_GROUNDS:
        for load in DAEMON_LOADS:
            orders = (("delay", delays.OWN), ("fcfs", delays.NONE))
            sides = [copies(ground, load, *order) for order in orders]
            row: Row = {"ground": ground, "load": load, "policy": "delay", "copies": len(sides[0])}
            for metric, key in (("wait", "wait_s"), ("bsld", "bsld")):
                own, base = (np.array([r[key] for r in side]) for side in sides)
                row[metric] = [round(end, 4) for end in paired(own, base, metric).known]
            yield row
