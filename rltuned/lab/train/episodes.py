"""Play windows by a network, in compiled code, and keep what learning needs."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rltuned.core.order import DEFAULT, Order, Policy
from rltuned.core.queue_features import QUEUE_FEATURES
from rltuned.lab.kernel.choices import Desk
from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray
from rltuned.lab.kernel.episode import (
    TAPE_CANDIDATES,
    TAPE_DECISIONS,
    TAPE_FULL,
    TAPE_PASSES,
    TAPE_ROWS,
    Tape,
    episode,
)
from rltuned.lab.kernel.features import StaticFeatures
from rltuned.lab.kernel.network import Net
from rltuned.lab.kernel.state import Setup, State, empty_state
from rltuned.lab.replay.orders import play, ruled
from rltuned.lab.replay.play import setup_of
from rltuned.lab.replay.prepared import room_for
from rltuned.lab.replay.protocol import BY_DEFAULT, Protocol, by_default, policy_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.natural import AGE_ONLY, Natural

MULTIFACTOR: Final = Natural(kind="multifactor")


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


@dataclass(slots=True)
class Recorder:
    """Holds the tape between episodes, and makes it longer when an episode did not fit. rows,
    decisions, candidates: there is room for.
    """

    rows: int = 262_144
    decisions: int = 8_192
    candidates: int = 524_288
    _tape: Tape | None = None

    def tape(self) -> Tape:
        """An empty tape."""
        if self._tape is None:
            self._tape = self._new()
        self._tape.used[:] = 0
        return self._tape

    def grow(self) -> None:
        """Twice the room."""
        self.rows, self.decisions = self.rows * 2, self.decisions * 2
        self.candidates, self._tape = self.candidates * 2, None

    def _new(self) -> Tape:
        return Tape(
            rows=np.empty((self.rows, QUEUE_FEATURES), dtype=np.float32),
            asked=np.empty((self.rows, 4), dtype=np.float32),
            first=np.zeros(self.decisions + 1, dtype=np.int64),
            flags=np.zeros((self.decisions, 2), dtype=np.int64),
            now_s=np.empty(self.decisions),
            decision_pass=np.empty(self.decisions, dtype=np.int64),
            choice=np.empty(self.decisions, dtype=np.int64),
            candidates=np.empty(self.candidates, dtype=np.int64),
            candidate_first=np.zeros(self.decisions + 1, dtype=np.int64),
            used=np.zeros(5, dtype=np.int64),
        )


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


def play_rule(window: Scenario, policy: str, order: Order | None = None) -> FloatArray:
    """(n,) start times under a rule at every event; order: None = pure. Raises TraceError."""
    protocol = Protocol(bounded=order is not None)
    if order is not None:
        protocol = replace(protocol, knobs=replace(protocol.knobs, order=order))
    return play_policy(window, policy, protocol)


def play_sampled(
    window: Scenario, net: Net, seed: int, recorder: Recorder
) -> tuple[FloatArray, Decisions]:
    """Draw every choice from the softmax over its candidates; the same seed, the same episode."""
    while True:
        setup, state, desk, sight = tables(window, seed)
        tape = recorder.tape()
        episode(setup, state, desk, sight, net, tape)
        if not tape.used[TAPE_FULL]:
            return state.start_s, _decisions(tape)
        recorder.grow()


def _decisions(tape: Tape) -> Decisions:
    used = tape.used
    passes, rows, count = used[TAPE_PASSES], used[TAPE_ROWS], used[TAPE_DECISIONS]
    return Decisions(
        rows=tape.rows[:rows].copy(),
        asked=tape.asked[:rows].copy(),
        first=tape.first[: passes + 1].copy(),
        flags=tape.flags[:passes].copy(),
        now_s=tape.now_s[:passes].copy(),
        of_pass=tape.decision_pass[:count].copy(),
        choice=tape.choice[:count].copy(),
        candidates=tape.candidates[: used[TAPE_CANDIDATES]].copy(),
        candidate_first=tape.candidate_first[: count + 1].copy(),
    )


def tables(window: Scenario, seed: int) -> tuple[Setup, State, Desk, StaticFeatures]:
    """An empty cluster and an empty queue before the first job."""
    window = window.ordered_by(MULTIFACTOR)
    prepared, sight = window.prepared, window.sight
    count, kinds = len(window), len(prepared.shapes.gpus)
    desk = Desk(
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
        random=np.array([_state_of(seed)], dtype=np.uint64),
        ranking=ruled(window, DEFAULT),
        asked=np.empty((count, 4), dtype=np.float32),
        logits=np.empty((count, 2)),
    )
    state = empty_state(prepared.hardware, prepared.shapes, prepared.jobs)
    return setup_of(window), state, desk, sight


def _state_of(seed: int) -> int:
    """A xorshift state is never zero, and seeds that lie close must not start alike."""
    return int(np.random.default_rng(seed).integers(1, 1 << 63))
