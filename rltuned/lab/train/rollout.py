"""Episodes of a training: windows, the choices of a network there, and their rewards.

A cost grows while time passes and ends at the metric, so rewards between decisions sum to the
metric (dense), and the whole of it at the end is the paper's form (gap). Costs are negative
rewards; the true run times are used here and never shown to a policy.

| objective   | cost at time t                                                            |
|-------------|---------------------------------------------------------------------------|
| wait        | seconds waited so far, mean over jobs                                     |
| bsld        | bounded slowdown so far, mean over jobs (1 while a job has lost nothing)  |
| jct         | seconds in the system so far, mean over jobs                              |
| utilisation | seconds since the first submit until the last end: with the work given,   |
|             | utilisation is work over GPUs over this                                   |
| tail        | squares of the seconds waited so far, mean over jobs                      |
| mix         | wait, bsld and tail, each as a part of the reference's total              |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.order import DEFAULT, Policy
from rltuned.lab.kernel import episode as kernel
from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray
from rltuned.lab.kernel.features import Net, StaticFeatures
from rltuned.lab.kernel.state import Setup, State, empty_state
from rltuned.lab.replay.metrics import SHORTEST_S
from rltuned.lab.replay.orders import play, ruled
from rltuned.lab.replay.play import setup_of
from rltuned.lab.replay.prepared import room_for
from rltuned.lab.replay.protocol import BY_DEFAULT, Protocol, by_default, policy_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.settings import Objective, PpoSettings
from rltuned.policies.actor import QUEUE_FEATURES
from rltuned.sim.world import AGE_ONLY, Natural

MULTIFACTOR: Final = Natural(kind="multifactor")
CYCLES: Final = Protocol(mode="cycle")
"""The daemon's own decision every minute, with its bounds and its memory."""
FLOOR: Final = {"wait": 1.0, "bsld": 0.01, "jct": 1.0, "utilisation": 1.0, "tail": 1.0, "mix": 1.0}
"""Least denominator of a gap: the paper's 1, and less where the excess slowdown is counted."""
MIXED: Final[tuple[Objective, ...]] = ("wait", "bsld", "tail")
_AT_ONCE: Final = 64
_END: Final = np.array([np.inf])

# Windows


def windows_between(
    scenario: Scenario, part: tuple[float, float], *, count: int, size: int, loads: Sequence[float]
) -> list[Scenario]:
    """Windows spread evenly over a part of a scenario, disjoint if possible; fewer if short, none
    twice.
    """
    first, last = int(len(scenario) * part[0]), int(len(scenario) * part[1]) - size
    if last < first:
        return []
    starts = np.linspace(first, last, count).astype(int)
    wanted = dict.fromkeys((int(at), loads[i % len(loads)]) for i, at in enumerate(starts))
    return [scenario.cut(at, size, load=load) for at, load in wanted]


def draw_window(
    scenarios: Sequence[Scenario],
    size: int,
    loads: tuple[float, float],
    draw: np.random.Generator,
    *,
    part: float,
) -> Scenario:
    """A random window of the first part of a random scenario, at a random load; a part that is
    shorter than a window is one.
    """
    scenario = scenarios[int(draw.integers(len(scenarios)))]
    room = max(1, int(len(scenario) * part))
    size = min(size, room)
    first = int(draw.integers(0, room - size + 1))
    return scenario.cut(first, size, load=float(draw.uniform(*loads)))


def play_policy(window: Scenario, policy: Policy | str, protocol: Protocol) -> FloatArray:
    """(n,) start times under a policy or a rule's name, where Slurm orders by age alone;
    `multifactor` is a usual site's order. Raises TraceError: there is no such rule.
    """
    if policy == BY_DEFAULT:
        protocol = by_default(protocol)
    chosen = policy_of(policy) if isinstance(policy, str) else policy
    name = chosen if isinstance(chosen, str) else chosen.name
    scenario = window.ordered_by(MULTIFACTOR if name == "multifactor" else AGE_ONLY)
    return play(chosen, scenario, protocol).start_s


# Choices of a network, sampled in compiled code


@dataclass(frozen=True, slots=True)
class Decisions:
    """The choices of one episode, ragged: D choices in Q passes over R rows.

    rows: (R, QUEUE_FEATURES); asked: (R, 4), see kernel/episode.Tape; first: (Q+1,); flags: (Q, 2);
    now_s: (Q,); of_pass, choice: (D,); candidates: (C,) row numbers; candidate_first: (D+1,).
    """

    rows: Float32Array
    asked: Float32Array
    first: IntArray
    flags: IntArray
    now_s: FloatArray
    of_pass: IntArray
    choice: IntArray
    candidates: IntArray
    candidate_first: IntArray

    def __len__(self) -> int:
        return len(self.choice)


class Recorder:
    """The tape that episodes are written to. room: for so many rows, twice as many candidates, and
    a decision for every 32.
    """

    def __init__(self, room: int = 262_144) -> None:
        self.make(room)

    def make(self, room: int) -> None:
        """Have a new tape."""
        self.room, decisions = room, room // 32
        self.tape = kernel.Tape(
            rows=np.empty((room, QUEUE_FEATURES), dtype=np.float32),
            asked=np.empty((room, 4), dtype=np.float32),
            first=np.zeros(decisions + 1, dtype=np.int64),
            flags=np.zeros((decisions, 2), dtype=np.int64),
            now_s=np.empty(decisions),
            decision_pass=np.empty(decisions, dtype=np.int64),
            choice=np.empty(decisions, dtype=np.int64),
            candidates=np.empty(2 * room, dtype=np.int64),
            candidate_first=np.zeros(decisions + 1, dtype=np.int64),
            used=np.zeros(5, dtype=np.int64),
        )


def play_sampled(
    window: Scenario, net: Net, seed: int, recorder: Recorder
) -> tuple[FloatArray, Decisions]:
    """Draw every choice from the softmax over its candidates; the same seed, the same episode."""
    while True:
        setup, state, desk, sight = tables(window, seed)
        tape = recorder.tape
        tape.used[:] = 0
        kernel.episode(setup, state, desk, sight, net, tape)
        if not tape.used[kernel.TAPE_FULL]:
            break
        recorder.make(2 * recorder.room)
    used = tape.used
    passes, rows, count = (
        used[kernel.TAPE_PASSES],
        used[kernel.TAPE_ROWS],
        used[kernel.TAPE_DECISIONS],
    )
    return state.start_s, Decisions(
        rows=tape.rows[:rows].copy(),
        asked=tape.asked[:rows].copy(),
        first=tape.first[: passes + 1].copy(),
        flags=tape.flags[:passes].copy(),
        now_s=tape.now_s[:passes].copy(),
        of_pass=tape.decision_pass[:count].copy(),
        choice=tape.choice[:count].copy(),
        candidates=tape.candidates[: used[kernel.TAPE_CANDIDATES]].copy(),
        candidate_first=tape.candidate_first[: count + 1].copy(),
    )


def tables(window: Scenario, seed: int) -> tuple[Setup, State, kernel.Desk, StaticFeatures]:
    """An empty cluster and an empty queue before the first job."""
    window = window.ordered_by(MULTIFACTOR)
    prepared, sight = window.prepared, window.sight
    count, kinds = len(window), len(prepared.shapes.gpus)
    desk = kernel.Desk(
        clock=np.array([0.0, np.inf]),
        marks=np.zeros(3, dtype=np.int64),
        queue=np.empty(count, dtype=np.int64),
        scores=np.empty(count),
        gone=np.zeros(count, dtype=bool),
        effective=np.empty(count, dtype=np.int64),
        fit=np.zeros(kinds, dtype=bool),
        fit_at=np.full(kinds, -1),
        harmless=np.zeros(kinds, dtype=bool),
        harmless_at=np.full(kinds, -1),
        features=room_for(sight, prepared),
        # a xorshift state is never zero, and seeds that lie close must not start alike
        random=np.random.default_rng(seed).integers(1, 1 << 63, 1).astype(np.uint64),
        ranking=ruled(window, DEFAULT),
        asked=np.empty((count, 4), dtype=np.float32),
        logits=np.empty((count, 2)),
    )
    state = empty_state(prepared.hardware, prepared.shapes, prepared.jobs)
    return setup_of(window), state, desk, sight


# Costs


def cost_at(
    objective: Objective,
    times: FloatArray,
    start_s: FloatArray,
    window: Scenario,
    unit: Sequence[float] = (1.0, 1.0, 1.0),
) -> FloatArray:
    """(k,) cost of a schedule start_s (n,) at times (k,); at infinity the metric itself, bsld
    without its constant 1. unit: of each metric in MIXED, one in a mix.
    """
    if objective == "mix":
        parts = [cost_at(o, times, start_s, window) / u for o, u in zip(MIXED, unit, strict=True)]
        mean: FloatArray = np.mean(parts, axis=0)
        return mean
    submit_s, runs_s = window.submit_s, window.prepared.jobs.runs_s
    if objective == "utilisation":
        last_s = (start_s + runs_s).max()
        since_s: FloatArray = np.clip(times, submit_s.min(), last_s) - submit_s.min()
        return since_s
    begin, end = submit_s, start_s
    rate = np.full(len(start_s), 1.0 / len(start_s)) * window.price
    if objective == "bsld":
        longer = np.maximum(window.duration_s, SHORTEST_S)
        begin, rate = submit_s + (longer - window.duration_s), rate / longer
    elif objective == "jct":
        end = start_s + runs_s
    end = np.maximum(end, begin)
    found = np.empty(len(times))
    for at in range(0, len(times), _AT_ONCE):
        some = times[at : at + _AT_ONCE, None]
        passed_s = np.clip(some, begin, end) - begin
        found[at : at + _AT_ONCE] = (passed_s**2 if objective == "tail" else passed_s) @ rate
    return found


def total(objective: Objective, window: Scenario, start_s: FloatArray) -> float:
    """A schedule's cost, not below the floor that rewards use too; a mix: geometric mean."""
    if objective == "mix":
        return math.prod(total(o, window, start_s) for o in MIXED) ** (1 / len(MIXED))
    return max(float(cost_at(objective, _END, start_s, window)[0]), FLOOR[objective])


# Rewards


@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout. rewards: (Q,) from each kept moment to the next; own, base: total costs."""

    kept: Decisions
    rewards: FloatArray
    own: float
    base: float


def compete(
    window: Scenario, net: Net, settings: PpoSettings, seed: int, recorder: Recorder
) -> list[Episode]:
    """Play a window by the base rule and, `rollouts` times, by the network."""
    base_s = play_policy(window, settings.base, Protocol(bounded=net.reach > 0))
    unit = [max(float(cost_at(o, _END, base_s, window)[0]), FLOOR[o]) for o in MIXED]

    def cost(times: FloatArray, start_s: FloatArray) -> FloatArray:
        return cost_at(settings.objective, times, start_s, window, unit)

    played = [play_sampled(window, net, seed + at, recorder) for at in range(settings.rollouts)]
    found = []
    for number, (start_s, kept) in enumerate(played):
        others = [s for at, (s, _) in enumerate(played) if at != number]
        references = others if settings.reference == "group" and others else [base_s]
        own, base = float(cost(_END, start_s)[0]), float(cost(_END, base_s)[0])
        most = max(own, base, FLOOR[settings.objective])
        if settings.form == "gap":
            rewards = np.zeros(len(kept.now_s))
            rewards[-1:] = (np.mean([cost(_END, r)[0] for r in references]) - own) / most
        else:
            times = np.append(kept.now_s, np.inf)
            beside = np.mean([np.diff(cost(times, r)) for r in references], axis=0)
            rewards = (beside - np.diff(cost(times, start_s))) / most
        found.append(Episode(kept, rewards, own, base))
    return found


# Many episodes as one table


@dataclass(frozen=True, slots=True)
class Batch(Decisions):
    """Many episodes as one ragged table. sizes: (E,) moments each; rewards: (Q,); choice_first:
    (Q+1,) where the choices of a moment begin.
    """

    sizes: IntArray
    rewards: FloatArray
    choice_first: IntArray


def join(episodes: Sequence[Episode]) -> Batch:
    """Put episodes end to end, shifting what points into the tables."""
    kept = [e.kept for e in episodes]
    rows = np.cumsum([0, *(len(k.rows) for k in kept)])
    passes = np.cumsum([0, *(len(k.now_s) for k in kept)])
    among = np.cumsum([0, *(len(k.candidates) for k in kept)])
    ends = [k.first[1:] + r for k, r in zip(kept, rows, strict=False)]
    lists = [k.candidate_first[1:] + a for k, a in zip(kept, among, strict=False)]
    of_pass = np.concatenate([k.of_pass + p for k, p in zip(kept, passes, strict=False)])
    return Batch(
        rows=np.concatenate([k.rows for k in kept]),
        asked=np.concatenate([k.asked for k in kept]),
        first=np.concatenate([[0], *ends]).astype(np.int64),
        flags=np.concatenate([k.flags for k in kept]),
        now_s=np.concatenate([k.now_s for k in kept]),
        of_pass=of_pass,
        choice=np.concatenate([k.choice + r for k, r in zip(kept, rows, strict=False)]),
        candidates=np.concatenate([k.candidates + r for k, r in zip(kept, rows, strict=False)]),
        candidate_first=np.concatenate([[0], *lists]).astype(np.int64),
        sizes=np.array([len(k.now_s) for k in kept]),
        rewards=np.concatenate([e.rewards for e in episodes]),
        choice_first=of_pass.searchsorted(np.arange(passes[-1] + 1)),
    )
