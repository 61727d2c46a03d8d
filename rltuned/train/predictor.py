"""Fit the run-time predictor to a trace, using of each job's past only what had ended by then.

Every job is an example: its inputs are what was known of its user and account when it was
submitted (jobs that had ended before), its target is how long it then ran. Earlier jobs teach,
later ones are held out. The moment of fitting is the last submit of a trace: who still runs then
has no run time yet and does not teach. The history that is shipped is the one at that moment.
"""

import heapq
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rltuned.errors import TraceError
from rltuned.policies.predictor import (
    HIDDEN,
    INPUTS,
    LOG_FULL,
    LONG_S,
    QUANTILES,
    STATS,
    Float32Array,
    FloatArray,
    Predictor,
    UserStatistics,
    assemble,
    bounded,
    digest,
    quantiles_of,
)
from rltuned.sim.trace import TraceJob

FEWEST_JOBS = 200
PASSES, STEPS, BATCH = 30, 300, 256
"""Few jobs are gone through more often than PASSES, until that is so many steps. On 500 to 1,000
jobs of a trace 30 steps predict worse than no look at the job, 1,000 begin to learn by heart."""
PARITY_ROWS = 64
MEMORY = 0.98
"""A user's older jobs count so much less with each that ends."""


class QuantileNet(nn.Module):
    """(n, INPUTS) -> (n, 3), as policies/predictor.quantiles_of: what is fitted."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, len(QUANTILES)),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Lowest first; the others add something positive."""
        raw = self.layers(inputs)
        steps = torch.cat([raw[:, :1], nn.functional.softplus(raw[:, 1:])], dim=-1)
        return torch.cumsum(steps, dim=-1)

    def weights(self) -> dict[str, Float32Array]:
        """As the daemon reads them."""
        return {name: value.detach().numpy().copy() for name, value in self.state_dict().items()}


@dataclass(slots=True)
class Account:
    """Running numbers of one user or account."""

    count: int = 0
    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    long: float = 0.0

    def end(self, run_s: float) -> None:
        """A job of theirs has ended."""
        x = math.log1p(run_s) / LOG_FULL
        self.count += 1
        self.weight = self.weight * MEMORY + 1.0
        self.total = self.total * MEMORY + x
        self.squares = self.squares * MEMORY + x * x
        self.long = self.long * MEMORY + (run_s > LONG_S)

    def stats(self) -> tuple[float, ...]:
        """STATS numbers; see policies/predictor."""
        mean = self.total / self.weight
        spread = math.sqrt(max(0.0, self.squares / self.weight - mean * mean))
        return math.log1p(self.count) / 10.0, mean, spread, self.long / self.weight


@dataclass(frozen=True, slots=True)
class Fitted:
    """A predictor, and how it did on the jobs held out.

    pinball: mean loss over the quantiles; plain: the same for quantiles of all run times, without
    looking at the job. covered: share of run times below each quantile. long_found: of the long
    jobs, the share among the highest-ranked as many by the median; by_limit: the same by limit.
    """

    predictor: Predictor
    pinball: float
    plain: float
    covered: tuple[float, ...]
    long_found: float
    long_by_limit: float
    examples: int


def past(jobs: Sequence[TraceJob]) -> tuple[Float32Array, Float32Array, UserStatistics]:
    """What was known of each job's user and account at its submit, (n, STATS + 1) each; and the
    history after the last job.
    """
    known: dict[str, Account] = {}
    ends: list[tuple[float, int]] = []
    by_user, by_account = (np.zeros((len(jobs), STATS + 1), dtype=np.float32) for _ in range(2))
    for i, job in enumerate(jobs):
        while ends and ends[0][0] <= job.submit_s:
            _note(known, jobs[heapq.heappop(ends)[1]])
        for table, name in ((by_user, _user(job)), (by_account, _account(job))):
            if name in known:
                table[i, :STATS], table[i, STATS] = known[name].stats(), 1.0
        heapq.heappush(ends, (job.submit_s + _run(job), i))
    last = jobs[-1].submit_s
    while ends and ends[0][0] <= last:
        _note(known, jobs[heapq.heappop(ends)[1]])
    keys = np.array(sorted(digest(n) for n in known), dtype=np.int64)
    stats = {digest(n): a.stats() for n, a in known.items()}
    table = np.array([stats[k] for k in keys.tolist()], dtype=np.float32).reshape(-1, STATS)
    return by_user, by_account, UserStatistics(keys, table)


def _note(known: dict[str, Account], job: TraceJob) -> None:
    for name in (_user(job), _account(job)):
        if name:
            known.setdefault(name, Account()).end(_run(job))


def _user(job: TraceJob) -> str:
    return f"user:{job.user}" if job.user else ""


def _account(job: TraceJob) -> str:
    return f"account:{job.account}" if job.account else ""


def _run(job: TraceJob) -> float:
    return min(job.duration_s, job.time_limit_s)


def fit(
    jobs: Sequence[TraceJob],
    *,
    beside: Sequence[Sequence[TraceJob]] = (),
    seed: int = 1,
    epochs: int | None = None,
    held_out: float = 0.2,
    on_epoch: Callable[[int, float], None] = lambda _epoch, _loss: None,
) -> Fitted:
    """Fit to jobs in submit order. Same jobs and seed: same predictor.

    Args:
        jobs: whose users and accounts the history will hold.
        beside: further traces to learn from, whose users are not kept.
        seed: of the weights.
        epochs: passes; None = as many as the number of jobs calls for.
        held_out: last part of the jobs, to measure by.
        on_epoch: called with the loss after each pass.

    Raises:
        TraceError: too few jobs.
    """
    if len(jobs) < FEWEST_JOBS:
        raise TraceError(f"{len(jobs)} jobs are too few to predict from; at least {FEWEST_JOBS}")
    x, y, history = _examples(jobs)
    if len(y) < FEWEST_JOBS:
        raise TraceError(
            f"{len(y)} jobs that had ended when the last one was submitted are too few to predict "
            f"from; at least {FEWEST_JOBS}"
        )
    cut = int(len(y) * (1 - held_out))
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = QuantileNet()
    others = [_examples(trace) for trace in beside]
    inputs = torch.from_numpy(np.concatenate([x[:cut], *(o[0] for o in others)]))
    targets = torch.from_numpy(np.concatenate([y[:cut], *(o[1] for o in others)]))
    count = len(targets)
    batches = max(1, count // BATCH)
    epochs = epochs or max(PASSES, -(-STEPS // batches))
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    draw = np.random.default_rng(seed)
    for epoch in range(epochs):
        total = 0.0
        for some in np.array_split(draw.permutation(count), batches):
            # now and then a user or account is forgotten, so that strangers are learned too
            seen = inputs[some].clone()
            for first in (4, 5 + STATS):
                stranger = torch.from_numpy(draw.random(len(some)) < 0.15)  # noqa: PLR2004
                seen[stranger, first : first + STATS + 1] = 0.0
            loss = pinball(network(seen), targets[some])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += float(loss.detach()) * len(some)
        schedule.step()
        on_epoch(epoch, total / count)
    return _measured(Predictor(network.weights(), history), x[cut:], y[cut:], y[:cut], len(y))


def _examples(jobs: Sequence[TraceJob]) -> tuple[Float32Array, Float32Array, UserStatistics]:
    """Inputs and targets of the jobs that had ended by the last submit, and the history then."""
    by_user, by_account, history = past(jobs)
    inputs = assemble([j.request() for j in jobs], by_user, by_account)
    runs = np.array([math.log1p(_run(j)) / LOG_FULL for j in jobs], dtype=np.float32)
    ended = np.array([j.submit_s + _run(j) <= jobs[-1].submit_s for j in jobs])
    return inputs[ended], runs[ended], history


def pinball(told: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean quantile loss of (n, 3) predictions."""
    error = target.unsqueeze(-1) - told
    levels = torch.tensor(QUANTILES)
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def _measured(
    predictor: Predictor, x: Float32Array, y: Float32Array, before: Float32Array, count: int
) -> Fitted:
    target = torch.from_numpy(y)
    told = torch.from_numpy(quantiles_of(predictor.weights, x))
    plain = torch.from_numpy(np.quantile(before, QUANTILES).astype(np.float32)).expand(len(y), -1)
    return Fitted(
        predictor=predictor,
        pinball=float(pinball(told, target)),
        plain=float(pinball(plain, target)),
        covered=tuple((target.unsqueeze(-1) <= told).float().mean(dim=0).tolist()),
        long_found=_found(told[:, 1].numpy().astype(np.float64), y),
        long_by_limit=_found(x[:, 0].astype(np.float64), y),
        examples=count,
    )


def _found(rank: FloatArray, y: Float32Array) -> float:
    """Of the long jobs, the share among as many of the highest rank."""
    long = y > math.log1p(LONG_S) / LOG_FULL
    count = int(long.sum())
    highest = np.argsort(-rank, kind="stable")[:count]
    return float(long[highest].mean()) if count else float("nan")


def as_known(predictor: Predictor, jobs: Sequence[TraceJob], fitted: int) -> Float32Array:
    """(n, 3) predictions for a trace whose first `fitted` jobs the predictor was fitted to.

    Those get what was known of their user when they came; the others what the shipped history
    says, as it will be when the predictor is not fitted again.
    """
    by_user, by_account, _ = past(jobs[:fitted])
    early = assemble([j.request() for j in jobs[:fitted]], by_user, by_account)
    late = predictor.inputs(
        [j.user for j in jobs[fitted:]],
        [j.account for j in jobs[fitted:]],
        [j.request() for j in jobs[fitted:]],
    )
    inputs = np.concatenate([early, late])
    return bounded(quantiles_of(predictor.weights, inputs), inputs)


def strangers(predictor: Predictor, jobs: Sequence[TraceJob]) -> Float32Array:
    """(n, 3) predictions where no user and no account is known: from limit and size alone."""
    unknown = Predictor(predictor.weights, NO_HISTORY)
    return unknown.columns([""] * len(jobs), [""] * len(jobs), [j.request() for j in jobs])


NO_HISTORY = UserStatistics(np.zeros(0, dtype=np.int64), np.zeros((0, STATS), dtype=np.float32))


def parity_bytes(predictor: Predictor) -> bytes:
    """Inputs of all kinds, and what PyTorch says of them: (64, INPUTS) and (64, 3)."""
    draw = np.random.default_rng(0)
    inputs = draw.random((PARITY_ROWS, INPUTS)).astype(np.float32)
    for first in (4, 5 + STATS):  # some are strangers
        inputs[draw.random(PARITY_ROWS) < 0.25, first : first + STATS + 1] = 0.0  # noqa: PLR2004
    network = QuantileNet()
    network.load_state_dict({k: torch.from_numpy(v) for k, v in predictor.weights.items()})
    with torch.inference_mode():
        told = network(torch.from_numpy(inputs)).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, inputs=inputs, told=told)
    return buffer.getvalue()
