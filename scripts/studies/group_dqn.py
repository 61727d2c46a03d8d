"""Plans of one group by a double DQN, alone or as first whale, as WORL-RTGS pairs them. For study:
docs/groups.md says what it is worth.

The article's state, action and reward are not public; these are a choice of rltuned. Jobs come in
HEFT's order, an action is the GPU type of the next one, which goes to the node of that type where
it ends first. The reward is the growth of the makespan, less. A small network is trained on the
group itself, and its greedy plan is the result. Same seed, same plan.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from scripts.studies.heft import (
    GroupPlan,
    PartialPlan,
    PlanGraph,
    PlannedRun,
    by_rank,
    heft,
    upward_ranks,
)
from scripts.studies.whales import search

EPISODES: Final = 30
BATCH: Final = 32
RATE: Final = 2e-3
DISCOUNT: Final = 0.99
COPY_EVERY: Final = 50
"""Updates between two copies of the network into the one that judges."""
FEATURES: Final = 7

Step = tuple[Tensor, float, Tensor, Tensor]
"""Features of the action, reward, (types, FEATURES) of the next actions, and which there are."""


def double_dqn(graph: PlanGraph, seed: int = 0) -> GroupPlan:
    """The greedy plan of a network that was trained on this group."""
    torch.set_num_threads(1)  # sums in one order, so the same plan every time
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _Learner(graph, seed).plan()


def whales_dqn(graph: PlanGraph, seed: int = 0) -> GroupPlan:
    """Whale optimisation from HEFT's plan and the network's."""
    return search(graph, seed, [heft(graph), double_dqn(graph, seed)])


def _network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )


class _Learner:
    def __init__(self, graph: PlanGraph, seed: int) -> None:
        self._graph, self._rng = graph, np.random.default_rng(seed)
        self._order, ranks = by_rank(graph), upward_ranks(graph)
        self._rank = [rank / max(ranks) for rank in ranks]
        known = heft(graph)
        self._scale_s = known.makespan_s
        self._target = _loads(known.graph, known.runs)
        self._net, self._judge = _network(), _network()
        self._judge.load_state_dict(self._net.state_dict())
        self._optimizer = torch.optim.Adam(self._net.parameters(), RATE)
        self._memory: list[Step] = []
        self._updates = 0

    def plan(self) -> GroupPlan:
        for episode in range(EPISODES):
            self._play(max(0.05, 1.0 - 2.0 * episode / EPISODES))
        return self._play(0.0)

    def _play(self, explore: float) -> GroupPlan:
        """One plan; learns while it explores."""
        plan, reached_s = PartialPlan(self._graph), 0.0
        last: tuple[Tensor, float] | None = None
        nothing = torch.zeros(len(self._target), FEATURES)
        for i in self._order:
            types = self._graph.types(self._graph.tasks[i])
            seen = nothing.clone()
            seen[: len(types)] = self._seen(plan, i, types)
            there = torch.arange(len(seen)) < len(types)
            if last is not None and explore:
                self._learn((*last, seen, there))
            if self._rng.random() < explore:
                action = int(self._rng.integers(len(types)))
            else:
                with torch.no_grad():
                    action = int(self._net(seen[: len(types)]).argmax())
            run = plan.best(i, types[action])
            plan.place(i, run)
            grown_s = max(0.0, run.end_s - reached_s)
            reached_s += grown_s
            last = seen[action], -grown_s / self._scale_s
        if last is not None and explore:
            self._learn((*last, nothing, torch.zeros(len(nothing), dtype=torch.bool)))
        return plan.done()

    def _seen(self, plan: PartialPlan, i: int, types: Sequence[str]) -> Tensor:
        """(types, FEATURES) what each choice for the next job looks like."""
        task, load = self._graph.tasks[i], _loads(self._graph, plan.runs)
        runs = [plan.best(i, one) for one in types]
        first_s, least_s = min(run.end_s for run in runs), min(task.run_s[t] for t in types)
        rows = [
            (
                self._rank[i],
                task.run_s[one] / least_s - 1.0,
                (run.end_s - first_s) / self._scale_s,
                run.start_s / self._scale_s,
                load[one] / self._scale_s,
                # the gap to the running time of the type in the plan to follow
                (self._target[one] - load[one]) / self._scale_s,
                1.0,
            )
            for one, run in zip(types, runs, strict=True)
        ]
        return torch.tensor(rows, dtype=torch.float32)

    def _learn(self, step: Step) -> None:
        self._memory.append(step)
        if len(self._memory) < BATCH:
            return
        picked = [self._memory[i] for i in self._rng.integers(len(self._memory), size=BATCH)]
        actions = torch.stack([step[0] for step in picked])
        afters = torch.stack([step[2] for step in picked])
        there = torch.stack([step[3] for step in picked])
        with torch.no_grad():  # one network chooses, the other judges
            worth = self._net(afters).squeeze(2).masked_fill(~there, -torch.inf)
            judged = self._judge(afters).squeeze(2).gather(1, worth.argmax(1, keepdim=True))
            ahead = torch.where(there.any(1), judged.squeeze(1), 0.0)
            goals = torch.tensor([step[1] for step in picked]) + DISCOUNT * ahead
        loss = nn.functional.smooth_l1_loss(self._net(actions).squeeze(1), goals)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._updates += 1
        if self._updates % COPY_EVERY == 0:
            self._judge.load_state_dict(self._net.state_dict())


def _loads(graph: PlanGraph, runs: Mapping[int, PlannedRun]) -> dict[str, float]:
    """By type, the GPU seconds of what was placed there, over its GPUs."""
    gpus: defaultdict[str, int] = defaultdict(int)
    for node in graph.nodes:
        gpus[node.gpu_type] += node.gpus
    found = dict.fromkeys(gpus, 0.0)
    for i, run in runs.items():
        kind = run.node.gpu_type
        found[kind] += (run.end_s - run.start_s) * graph.tasks[i].gpus / gpus[kind]
    return found
