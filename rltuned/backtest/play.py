"""The history played under Slurm's own order, and with the daemon switched on at a moment.

Both plays are the compiled world's from the beginning of the record on: same jobs, same placement,
same backfill, the same moments at which Slurm looks at its queue, and up to the switch the same
order. From there the daemon's decision is made at its own interval, within its bounds, with memory
of what it wrote; between two cycles Slurm's order stands.
"""

from dataclasses import dataclass, replace

import numpy as np

from rltuned.backtest.past import Past
from rltuned.core.decide import Knobs, Policy
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import Predictor
from rltuned.sim.metrics import FloatArray
from rltuned.sim.orders import Stage, in_cycles
from rltuned.sim.play import Played as Run
from rltuned.sim.play import run
from rltuned.sim.prepared import prepare
from rltuned.sim.run_times import layers_of
from rltuned.sim.world import Rules


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of the daemon: at_s since begin; pending jobs, changes; mean and longest shift of
    ranks over all pending jobs.
    """

    at_s: float
    pending: int
    changes: int
    shift: float
    furthest: int


@dataclass(frozen=True, slots=True)
class BacktestPlay:
    """What became of every job, (n,): start and end in seconds since begin. touched: numbers of the
    jobs whose priority was changed.
    """

    start_s: FloatArray
    end_s: FloatArray
    cycles: tuple[Cycle, ...] = ()
    touched: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Terms:
    """How the daemon would run: its interval, what steers it, and the predictor of run times."""

    interval_s: float
    knobs: Knobs
    predictor: Predictor | None = None


def stage_of(past: Past) -> Stage:
    """A history ready to be played under any number of orders."""
    place = past.place
    return Stage(place.cluster, past.jobs, prepare(place.cluster, past.jobs), place.natural)


def play_natural(past: Past, stage: Stage, interval_s: float) -> BacktestPlay:
    """Slurm's own order throughout; it looks at its queue at every event and every interval."""
    terms = Terms(interval_s, Knobs(top_k=0))
    return replace(play_ours(past, stage, BASELINES["fcfs"], terms), cycles=())


def play_ours(past: Past, stage: Stage, policy: Policy, terms: Terms) -> BacktestPlay:
    """The policy's order from the split on.

    Raises:
        KeyError: the compiled world does not know the policy.
    """
    if terms.predictor is not None:
        stage = replace(stage, predictor=layers_of(terms.predictor))
    ranking, cycles, eyes = in_cycles(
        policy, stage, terms.knobs, terms.interval_s, first_s=past.split_s
    )
    played = run(
        stage.prepared,
        ranking,
        _rules(past),
        cycles=cycles,
        eyes=eyes,
        arrive_s=_arrive_s(past, stage),
    )
    last_s = float(played.start_s[past.scored].max())
    return _played(played, last_s)


def _rules(past: Past) -> Rules:
    return Rules(backfill=past.place.backfill, natural=past.place.natural)


def _arrive_s(past: Past, stage: Stage) -> FloatArray:
    """(n,) when each job may start: what waited at the beginning of the record, not before it."""
    arrive_s = stage.prepared.jobs.submit_s.copy()
    waiting = np.array(sorted(past.waiting), dtype=np.int64) - 1
    arrive_s[waiting] = np.maximum(arrive_s[waiting], 0.0)
    return arrive_s


def _played(run: Run, last_s: float) -> BacktestPlay:
    """last_s: later cycles are left out, as no scored job waits for them."""
    cycles = tuple(Cycle(*row) for row in run.cycles if row[0] <= last_s)
    touched = frozenset((np.flatnonzero(run.writes) + 1).tolist())
    return BacktestPlay(run.start_s, run.end_s, cycles, touched)
