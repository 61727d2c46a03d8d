"""Play windows by a network, in compiled code, and keep what learning needs."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.features import NUM_FEATURES
from rltuned.core.order import Order
from rltuned.policies.baselines import BASELINES
from rltuned.policies.delay_curve import DelayCurve
from rltuned.policies.network import ContextActor, InspectorActor, PaperActor
from rltuned.policies.rivals import INSPECTED
from rltuned.sim.engine.arrays import FloatArray, IntArray, Shares
from rltuned.sim.engine.dispatch import Setup, State
from rltuned.sim.engine.loop import Ranking
from rltuned.sim.engine.run import free_of, spreads
from rltuned.train.ground import Window
from rltuned.train.rollout.nets import CONTEXT, INSPECTOR, KERNEL, PAPER
from rltuned.train.rollout.play import BY_INSPECTOR, BY_NET, BY_RULE, episode
from rltuned.train.rollout.state import (
    TAPE_CANDIDATES,
    TAPE_DECISIONS,
    TAPE_FULL,
    TAPE_PASSES,
    TAPE_ROWS,
    Desk,
    Float32Array,
    Net,
    Sight,
    Tape,
)

RULES: Final = tuple(BASELINES)
"""Net.base points into them."""
KINDS: Final = {"paper": PAPER, "context": CONTEXT, "kernel": KERNEL, "inspector": INSPECTOR}
_NO_RANKING: Final = Ranking(
    0, np.zeros(0), np.zeros(0), np.zeros(0), np.zeros((0, 2)), np.zeros(2)
)


@dataclass(frozen=True, slots=True)
class Delayed:
    """How a network's scores become delays: its bundle's curve, within the bounds of an order."""

    curve: DelayCurve
    order: Order


@dataclass(frozen=True, slots=True)
class Decisions:
    """The choices of one episode, ragged: D choices in Q passes over R rows.

    rows: (R, NUM_FEATURES); first: (Q+1,); flags: (Q, 2); now_s: (Q,); of_pass, choice: (D,);
    candidates: (C,) row numbers; candidate_first: (D+1,).
    """

    rows: Float32Array
    first: IntArray
    flags: IntArray
    now_s: FloatArray
    of_pass: IntArray
    choice: IntArray
    candidates: IntArray
    candidate_first: IntArray

    def __len__(self) -> int:
        return len(self.choice)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Room for a tape, used again for every episode of a process."""

    rows: int = 262_144
    decisions: int = 8_192
    candidates: int = 524_288


@dataclass(slots=True)
class Recorder:
    """Holds the tape between episodes, and makes it longer when an episode did not fit."""

    room: Scratch = Scratch()
    _tape: Tape | None = None

    def tape(self, features: int = NUM_FEATURES) -> Tape:
        """An empty tape for rows of so many features."""
        if self._tape is None or self._tape.rows.shape[1] != features:
            self._tape = _tape(self.room, features)
        self._tape.used[:] = 0
        return self._tape

    def grow(self) -> None:
        """Twice the room."""
        room = self.room
        self.room = Scratch(room.rows * 2, room.decisions * 2, room.candidates * 2)
        self._tape = None


def _tape(room: Scratch, features: int = NUM_FEATURES) -> Tape:
    return Tape(
        rows=np.empty((room.rows, features), dtype=np.float32),
        first=np.zeros(room.decisions + 1, dtype=np.int64),
        flags=np.zeros((room.decisions, 2), dtype=np.int64),
        now_s=np.empty(room.decisions),
        decision_pass=np.empty(room.decisions, dtype=np.int64),
        choice=np.empty(room.decisions, dtype=np.int64),
        candidates=np.empty(room.candidates, dtype=np.int64),
        candidate_first=np.zeros(room.decisions + 1, dtype=np.int64),
        used=np.zeros(5, dtype=np.int64),
    )


NOTHING_KEPT: Final = Scratch(rows=1, decisions=1, candidates=1)


def net_of(network: PaperActor | ContextActor) -> Net:
    """A network's weights in the form that the compiled forward reads."""
    w = {k: v.detach().cpu().numpy().astype(np.float32) for k, v in network.state_dict().items()}
    deep = pooled = np.zeros((0, 0), dtype=np.float32)
    deep_b = np.zeros(0, dtype=np.float32)
    if isinstance(network, PaperActor):
        names = [name.removesuffix(".weight") for name in w if name.endswith(".weight")]
        second = w[f"{names[1]}.weight"].T
        for name in names[2:-1]:
            deep, deep_b = np.ascontiguousarray(w[f"{name}.weight"].T), w[f"{name}.bias"]
    else:
        names = ["encoder", "mix", "head"]
        hidden = len(w["encoder.bias"])
        whole = w["mix.weight"].T  # own, mean, most: stacked
        second, pooled = whole[:hidden], np.ascontiguousarray(whole[hidden:])
    return Net(
        kind=KINDS[network.kind],
        w1=np.ascontiguousarray(w[f"{names[0]}.weight"].T),
        b1=w[f"{names[0]}.bias"],
        w2=np.ascontiguousarray(second),
        pooled=pooled,
        b2=w[f"{names[1]}.bias"],
        deep=deep,
        deep_b=deep_b,
        w3=np.ascontiguousarray(w[f"{names[-1]}.weight"][0]),
        b3=w[f"{names[-1]}.bias"],
        base=RULES.index(network.base) if isinstance(network, InspectorActor) else -1,
    )


_NO_NET: Final = net_of(PaperActor(1, (1, 1)))
_NO_CURVE: Final = np.zeros((2, 1))


def play_rule(window: Window, policy: str, order: Order | None = None) -> FloatArray:
    """(n,) start times under a rule, through the same steps as a network's order.

    order: the bounds of its delays; None = its pure order.
    """
    setup, state, desk, sight = tables(window, seed=0)
    tape = _tape(NOTHING_KEPT)
    ranking = window.ranking(policy, order)
    episode(setup, state, desk, sight, _NO_NET, ranking, BY_RULE, False, False, tape)
    return state.start_s


def play_order(window: Window, keys: FloatArray) -> FloatArray:
    """(n,) start times when the job with the smallest key goes first; equal keys by submit."""
    setup, state, desk, sight = tables(window, seed=0)
    ranking = window.ranking("fcfs")._replace(key=keys)
    episode(setup, state, desk, sight, _NO_NET, ranking, BY_RULE, False, False, _tape(NOTHING_KEPT))
    return state.start_s


def led_by(window: Window, net: Net) -> tuple[Ranking, int]:
    """Who orders the queue: the network, or the rule that an inspector watches over."""
    if net.kind == INSPECTOR:
        return window.ranking(RULES[net.base]), BY_INSPECTOR
    return _NO_RANKING, BY_NET


def play_greedy(window: Window, net: Net, delayed: Delayed | None = None) -> FloatArray:
    """(n,) start times under a network that always takes its best; delayed None: pure order."""
    setup, state, desk, sight = tables(window, seed=0, delayed=delayed)
    tape = _tape(NOTHING_KEPT)
    ranking, mode = led_by(window, net)
    episode(setup, state, desk, sight, net, ranking, mode, False, False, tape)
    return state.start_s


def play_sampled(
    window: Window, net: Net, seed: int, recorder: Recorder
) -> tuple[FloatArray, Decisions]:
    """Draw every choice from the softmax over its candidates, and keep the choices.

    The same window, weights and seed give the same episode.
    """
    ranking, mode = led_by(window, net)
    features = len(INSPECTED) if mode == BY_INSPECTOR else window.fixed.shape[1]
    while True:
        setup, state, desk, sight = tables(window, seed)
        tape = recorder.tape(features)
        episode(setup, state, desk, sight, net, ranking, mode, True, True, tape)
        if not tape.used[TAPE_FULL]:
            return state.start_s, _decisions(tape)
        recorder.grow()


def _decisions(tape: Tape) -> Decisions:
    used = tape.used
    passes, rows, count = used[TAPE_PASSES], used[TAPE_ROWS], used[TAPE_DECISIONS]
    return Decisions(
        rows=tape.rows[:rows].copy(),
        first=tape.first[: passes + 1].copy(),
        flags=tape.flags[:passes].copy(),
        now_s=tape.now_s[:passes].copy(),
        of_pass=tape.decision_pass[:count].copy(),
        choice=tape.choice[:count].copy(),
        candidates=tape.candidates[: used[TAPE_CANDIDATES]].copy(),
        candidate_first=tape.candidate_first[: count + 1].copy(),
    )


def tables(
    window: Window, seed: int, delayed: Delayed | None = None
) -> tuple[Setup, State, Desk, Sight]:
    """An empty cluster and an empty queue before the first job; delayed None: no bounds."""
    prepared, rules = window.prepared, window.ground.rules
    jobs, shapes, hardware = prepared.jobs, prepared.shapes, prepared.hardware
    count, nodes, kinds = len(window), len(hardware.row), len(shapes.gpus)
    partitions, total = len(hardware.near), int(shapes.width[jobs.shape].sum())
    state = State(
        free=free_of(hardware),
        start_s=np.full(count, np.nan),
        shares=Shares(*(np.zeros(total, dtype=np.int64) for _ in range(5))),
        running=np.empty(count, dtype=np.int64),
        latest=np.empty(count),
        head=np.full(partitions, -1),
        shadow_s=np.full(partitions, np.inf),
        later_gpus=np.zeros((partitions, nodes), dtype=np.int64),
        later_of_type=np.zeros((partitions, *hardware.of_type.shape), dtype=np.int64),
        later_cpus=np.zeros((partitions, nodes), dtype=np.int64),
        later_mem=np.zeros((partitions, nodes), dtype=np.int64),
        failed=np.full(kinds, -1),
        refused=np.full(kinds, -1),
        counters=np.zeros(4, dtype=np.int64),
        chosen=np.empty(2 * int(shapes.width.max()) + 1, dtype=np.int64),
    )
    desk = Desk(
        clock=np.array([0.0, np.inf]),
        marks=np.zeros(4, dtype=np.int64),
        queue=np.empty(count, dtype=np.int64),
        scores=np.empty(count),
        gone=np.zeros(count, dtype=bool),
        effective=np.empty(count, dtype=np.int64),
        fit=np.zeros(kinds, dtype=bool),
        fit_at=np.full(kinds, -1),
        harmless=np.zeros(kinds, dtype=bool),
        harmless_at=np.full(kinds, -1),
        survey=np.zeros((kinds, 5)),
        surveyed=np.full(kinds, -1),
        sums=np.zeros((partitions, window.ground.sight.wanted.shape[1], 3)),
        back=np.zeros(nodes),
        rows=np.empty((count, window.fixed.shape[1]), dtype=np.float32),
        random=np.array([_state_of(seed)], dtype=np.uint64),
        upper_s=np.zeros(0) if delayed is None else window.upper_s(delayed.order),
        curve=_NO_CURVE
        if delayed is None
        else np.array([delayed.curve.score, delayed.curve.log_delay]),
        stretch=np.array([1.0 if delayed is None else delayed.order.stretch]),
        rejected=np.zeros(count, dtype=np.int64),
    )
    setup = Setup(hardware, shapes, jobs, spreads(rules), rules.backfill == "easy")
    return setup, state, desk, window.ground.sight._replace(fixed=window.fixed)


def _state_of(seed: int) -> int:
    """A xorshift state is never zero, and seeds that lie close must not start alike."""
    return int(np.random.default_rng(seed).integers(1, 1 << 63))
