"""Fit the run-time predictor to histories, using of each job's past only what had ended by then.

Every job is an example: its inputs are what was known of its kinds when it was submitted, its
target is the bin of the time that it then ran. Earlier jobs are fitted to, later ones held out.
Traces do not show how long jobs waited: their jobs are read as if each had started at its
submission. The moment of fitting is then the last submission: jobs that still run have no run time
yet and are left out. A site's record gives the starts of jobs that have all ended.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from rltuned.core import run_times
from rltuned.core import run_times as runs
from rltuned.core.features import LIMIT_FULL_S
from rltuned.errors import TraceError
from rltuned.lab.kernel.run_times import RunTimes, replay
from rltuned.lab.replay.orders import known_of, layers_of, runs_of
from rltuned.lab.replay.scenario import Foreseen
from rltuned.lab.train.network import perceptron
from rltuned.policies.predictor import HIDDEN, Predictor
from rltuned.sim.trace import TraceJob

FEWEST_JOBS: Final = 200
GARBLED: Final = 0.8
"""Standard deviation of ln(plan) between a predictor that fits a site and one that does not."""
PASSES, STEPS, BATCH = 8, 600, 256
"""Few jobs are gone through more often than PASSES, until that is so many steps."""
HELD_OUT: Final = 0.2
"""The last part of a site's jobs, to measure by."""
FORGOTTEN: Final = 0.1
"""Chance that a kind of a job is hidden from the network, which so learns to do without."""
RATE: Final = 4e-3
PARITY_ROWS: Final = 64


class BinNet(nn.Module):
    """(n, INPUTS) -> (n, BINS) logits of the bins of EDGES, as policies/predictor: what is fitted.
    begin: weights to begin from; None = drawn.
    """

    def __init__(self, begin: Predictor | None = None) -> None:
        super().__init__()
        self.layers = perceptron(runs.INPUTS, HIDDEN, runs.BINS)
        if begin is not None:
            weights = {name: torch.from_numpy(v.copy()) for name, v in begin.weights.items()}
            self.load_state_dict(weights)

    def forward(self, inputs: Tensor) -> Tensor:
        """See the class."""
        found: Tensor = self.layers(inputs)
        return found

    def predictor(self) -> Predictor:
        """The weights as they are now, as the daemon reads them."""
        state = self.state_dict()
        return Predictor({name: value.detach().numpy().copy() for name, value in state.items()})


@dataclass(frozen=True, slots=True)
class Examples:
    """Jobs that had ended. inputs: (n, INPUTS); x: (n,) ln(1 + run) / ln(1 + 30 d); summary: (n,
    SUMMARY) at the replay.
    """

    inputs: runs.Float32Array
    x: runs.FloatArray
    summary: runs.FloatArray

    def __len__(self) -> int:
        return len(self.x)

    def cut(self, part: slice) -> "Examples":
        return Examples(self.inputs[part], self.x[part], self.summary[part])


@dataclass(frozen=True, slots=True)
class Fitted:
    """A predictor, fitted to so many examples, and how it did on the jobs held out.

    pinball: mean quantile loss of ln(run time); plain: the same for quantiles of all run times,
    without looking at the job. covered: share of run times below each quantile.
    """

    predictor: Predictor
    examples: int
    pinball: float
    plain: float
    covered: tuple[float, ...]


def examples_of(
    jobs: Sequence[TraceJob],
    predictor: Predictor | None = None,
    start_s: runs.FloatArray | None = None,
) -> Examples:
    """A history replayed, in the order of submission. predictor: None = a fresh one. start_s: (n,)
    of a record whose jobs have all ended; None = a trace, whose jobs start at submission.
    """
    known = known_of(jobs, layers_of(predictor or BinNet().predictor()))
    inputs, end_s, runs_s = _replayed(known, jobs, start_s)
    ended = end_s <= jobs[-1].submit_s if start_s is None else np.isfinite(end_s)
    return Examples(inputs[ended], np.log1p(runs_s[ended]) / runs.LOG_FULL, known.predicted[ended])


def _replayed(
    known: RunTimes, jobs: Sequence[TraceJob], start_s: runs.FloatArray | None = None
) -> tuple[runs.Float32Array, runs.FloatArray, runs.FloatArray]:
    """Fill a memory with a history: inputs (n, INPUTS); ends and run times (n,)."""
    submit_s, runs_s = np.array([j.submit_s for j in jobs]), runs_of(jobs)
    starts = submit_s if start_s is None else start_s
    inputs = np.zeros((len(jobs), runs.INPUTS), dtype=np.float32)
    end_s = starts + runs_s
    replay(known, submit_s, starts, end_s, inputs, np.zeros(len(jobs)))
    return inputs, end_s, runs_s


def foreseen(
    predictor: Predictor,
    jobs: Sequence[TraceJob],
    *,
    start_s: runs.FloatArray | None = None,
    cold: bool = False,
) -> Foreseen:
    """What is predicted of jobs at submission. start_s: (n,) when they started, inf = not; None =
    at submission. cold: from their requests alone.
    """
    known = known_of(jobs, layers_of(predictor))
    if cold:
        known.slots[:] = -1
    _replayed(known, jobs, start_s)
    rows = list(zip(known.predicted, known.limit_s, strict=True))
    plan_s = np.array([run_times.plan_s(row, 0.0, limit_s) for row, limit_s in rows])
    mean_s = np.array([run_times.mean_s(row, 0.0, limit_s) for row, limit_s in rows])
    quantiles = known.predicted[:, runs.QUANTILE_COLUMNS] / runs.LOG_FULL
    return Foreseen(quantiles.astype(np.float32), plan_s, mean_s)


def garbled(found: Foreseen, jobs: Sequence[TraceJob]) -> Foreseen:
    """Predictions as far off as those of a site that has nothing in common with this one."""
    draw = np.random.default_rng([len(jobs), 19])
    error = GARBLED * draw.standard_normal(len(jobs))
    limit_s = np.array([min(j.time_limit_s, LIMIT_FULL_S) for j in jobs])
    limit = np.log1p(limit_s)[:, None] / runs.LOG_FULL
    quantiles = np.clip(found.quantiles + error[:, None] / runs.LOG_FULL, 0.0, limit)
    plan_s = np.minimum(found.plan_s * np.exp(error), runs.HIGH_SCALE * limit_s)
    mean_s = np.minimum(found.mean_s * np.exp(error), limit_s)
    return Foreseen(quantiles.astype(np.float32), plan_s, mean_s)


def fit(
    jobs: Sequence[TraceJob],
    *,
    start_s: runs.FloatArray | None = None,
    beside: Sequence[Sequence[TraceJob]] = (),
    begin: Predictor | None = None,
    seed: int = 1,
    epochs: int | None = None,
) -> Fitted:
    """Fit to histories, reproducibly. start_s: as `examples_of`. beside: further histories. begin:
    None = drawn. epochs: None = as many as the number of jobs calls for. Raises TraceError: too few
    jobs.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    if len(jobs) < FEWEST_JOBS or len(own := examples_of(jobs, None, start_s)) < FEWEST_JOBS:
        raise TraceError(
            f"of {len(jobs)} jobs too few had ended when the last one was submitted to predict "
            f"from; at least {FEWEST_JOBS} are needed"
        )
    learned = int(len(own) * (1 - HELD_OUT))
    parts = [own.cut(slice(0, learned)), *map(examples_of, beside)]
    network = BinNet(begin)
    _learn(network, parts, seed, epochs)
    predictor = network.predictor()
    judged = examples_of(jobs, predictor, start_s).cut(slice(learned, None))
    quantiles = judged.summary[:, runs.QUANTILE_COLUMNS] / runs.LOG_FULL
    plain = np.tile(np.quantile(own.x[:learned], runs.QUANTILES), (len(judged), 1))
    covered = tuple((judged.x[:, None] <= quantiles).mean(axis=0).tolist())
    loss, without = pinball(quantiles, judged.x), pinball(plain, judged.x)
    return Fitted(predictor, len(own), loss, without, covered)


def _learn(network: BinNet, parts: Sequence[Examples], seed: int, epochs: int | None) -> None:
    seen, x = (np.concatenate([getattr(p, name) for p in parts]) for name in ("inputs", "x"))
    # the bins that a run falls into, and those that lie below its job's limit
    bins = np.clip(np.searchsorted(runs.EDGES, x, side="right") - 1, 0, runs.BINS - 1)
    below = runs.EDGES[None, :-1] < np.where(seen[:, 1] > 0, seen[:, 0], np.inf)[:, None]
    inputs, target, possible = (torch.from_numpy(array) for array in (seen, bins, below))
    count = len(target)
    batches = max(1, count // BATCH)
    epochs = epochs or max(PASSES, -(-STEPS // batches))
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, epochs * batches)
    draw = np.random.default_rng(seed)
    for _ in range(epochs):
        for some in np.array_split(draw.permutation(count), batches):
            logits = network(_partly(inputs[some], draw))
            # the bin of a run at its limit is always possible
            logits = logits.masked_fill(~possible[some], -1e9)
            loss = nn.functional.cross_entropy(logits, target[some])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()


def _partly(inputs: Tensor, draw: np.random.Generator) -> Tensor:
    """Inputs (n, INPUTS) with some kinds of some jobs hidden."""
    shown = torch.from_numpy(draw.random((len(inputs), len(runs.KEYS), 1)) >= FORGOTTEN)
    kinds = inputs[:, runs.REQUEST_SIGNS :].view(-1, len(runs.KEYS), runs.SIGNS) * shown
    return torch.cat([inputs[:, : runs.REQUEST_SIGNS], kinds.flatten(1)], dim=1)


def pinball(predicted: runs.FloatArray, x: runs.FloatArray) -> float:
    """Mean quantile loss of (n, 3) predictions of x, in ln(seconds)."""
    error = x[:, None] - predicted
    levels = np.array(runs.QUANTILES)
    return float(np.maximum(levels * error, (levels - 1) * error).mean() * runs.LOG_FULL)


def parity_bytes(predictor: Predictor) -> bytes:
    """Inputs of all kinds, and PyTorch's logits of them: (64, INPUTS) and (64, BINS)."""
    draw = np.random.default_rng(0)
    inputs = torch.from_numpy(draw.random((PARITY_ROWS, runs.INPUTS)).astype(np.float32))
    inputs = _partly(inputs, draw)
    with torch.inference_mode():
        logits = BinNet(predictor)(inputs).numpy()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, inputs=inputs.numpy(), logits=logits)
    return buffer.getvalue()
