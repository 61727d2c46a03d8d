"""What a scheduler may know of the run times of a trace's jobs: their kinds, and a predictor."""

from collections.abc import Sequence

import numpy as np

from rltuned.core.features import LIMIT_FULL_S
from rltuned.core.run_times import BURST_S, FIELDS, KEYS, KIN, LIMIT_SUMS, SUMMARY
from rltuned.kernel.compiler import FloatArray, IntArray
from rltuned.kernel.run_times import Layers, RunTimes
from rltuned.policies.network import LAYERS
from rltuned.policies.predictor import Predictor
from rltuned.sim.trace import TraceJob


def known_of(jobs: Sequence[TraceJob], layers: Layers) -> RunTimes:
    """An empty memory with room for what these jobs, in the order of submission, will show."""
    slots = slots_of(jobs)
    return RunTimes(
        slots=slots,
        stats=np.zeros((int(slots.max(initial=-1)) + 1, FIELDS)),
        limit_s=np.array([min(j.time_limit_s, LIMIT_FULL_S) for j in jobs]),
        gpus=np.array([j.gpus for j in jobs], dtype=np.float64),
        layers=layers,
        predicted=np.zeros((len(jobs), SUMMARY)),
        before=np.zeros((len(jobs), len(KIN), 2)),
        limits=np.zeros(LIMIT_SUMS),
    )


def slots_of(jobs: Sequence[TraceJob]) -> IntArray:
    """(n, KEYS) the kinds of each job as numbers from 0; -1 where the trace does not say."""
    numbers: dict[object, int] = {}
    bursts: dict[object, tuple[float, float]] = {}
    rows = np.full((len(jobs), len(KEYS)), -1, dtype=np.int64)
    for at, job in enumerate(jobs):
        for place, (key, kind) in enumerate(zip(KEYS, _kinds(job, bursts), strict=True)):
            if kind is not None:
                rows[at, place] = numbers.setdefault((key, kind), len(numbers))
    return rows


def _kinds(job: TraceJob, bursts: dict[object, tuple[float, float]]) -> tuple[object, ...]:
    """In the order of KEYS."""
    user, limit_s = job.user or None, job.time_limit_s
    twin = (job.user, job.account, job.partition, job.gpus, limit_s)
    began_s, last_s = bursts.get(twin, (job.submit_s, job.submit_s))
    if job.submit_s - last_s > BURST_S:
        began_s = job.submit_s
    bursts[twin] = began_s, job.submit_s

    def of_user(value: object) -> object:
        return (user, value) if user and value else None

    return (
        True,
        job.gpus,
        (job.gpus, limit_s) if limit_s < LIMIT_FULL_S else None,
        job.account or None,
        (job.account, job.gpus) if job.account else None,
        user,
        of_user(("gpus", job.gpus)),
        twin,
        (twin, began_s),
        of_user(job.partition or True),
        of_user(job.qos),
        of_user(job.gpu_types),
        None,
        of_user(job.name),
        None,
        None,
        None,
    )


def runs_of(jobs: Sequence[TraceJob]) -> FloatArray:
    """(n,) how long each will run, which only targets and figures may use."""
    return np.array([min(j.duration_s, j.time_limit_s) for j in jobs])


def layers_of(predictor: Predictor) -> Layers:
    """A predictor's weights in the form that the compiled forward reads."""
    w = predictor.weights
    arrays = []
    for layer in LAYERS["paper"]:
        arrays += [np.ascontiguousarray(w[f"{layer}.weight"].T), w[f"{layer}.bias"]]
    return Layers(*arrays)
