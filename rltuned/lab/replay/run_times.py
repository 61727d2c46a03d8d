"""What a scheduler may know of the run times of a trace's jobs: their kinds, and a predictor."""

from collections.abc import Sequence

import numpy as np

from rltuned.core.asked import Asked, kinds_of
from rltuned.core.features import LIMIT_FULL_S
from rltuned.core.limits import LIMIT_SUMS
from rltuned.core.run_times import BURST_S, FIELDS, KEYS, KIN, PARTS, SHARED, SLOTS, SUMMARY
from rltuned.domain.kinds import Kinds
from rltuned.domain.units import GpuType
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.kernel.run_times import FORESEEN, Layers, RunTimes
from rltuned.policies.network import LAYERS
from rltuned.policies.predictor import Predictor
from rltuned.sim.trace import TraceJob

_ONLY = "default"
"""The partition of a trace that names none."""


def known_of(jobs: Sequence[TraceJob], layers: Layers, size: FloatArray | None = None) -> RunTimes:
    """An empty memory with room for what these jobs, in the order of submission, will show. size:
    (n,) m of core/backlog; None = the GPUs.
    """
    slots = slots_of(jobs)
    gpus = np.array([j.gpus for j in jobs], dtype=np.float64)
    users: dict[str, int] = {}
    user = [users.setdefault(j.user, len(users) + 1) if j.user else 0 for j in jobs]
    return RunTimes(
        slots=slots,
        stats=np.zeros((int(slots.max(initial=-1)) + 1, FIELDS)),
        limit_s=np.array([min(j.time_limit_s, LIMIT_FULL_S) for j in jobs]),
        size=gpus if size is None else np.where(gpus > 0, size, 0.0),
        layers=layers,
        predicted=np.zeros((len(jobs), SUMMARY)),
        before=np.zeros((len(jobs), len(KIN), 2)),
        limits=np.zeros((1 + len(users), LIMIT_SUMS)),
        user=np.array(user, dtype=np.int64),
        foreseen=np.full((len(jobs), FORESEEN), -1.0),
    )


def slots_of(jobs: Sequence[TraceJob]) -> IntArray:
    """(n, SLOTS) the kinds of each job, see core/asked.kinds_of, as numbers from 0; -1 where the
    trace does not say.
    """
    numbers: dict[object, int] = {}
    names: dict[str, int] = {"": 0}
    bursts: dict[object, tuple[float, float]] = {}
    rows = np.full((len(jobs), SLOTS), -1, dtype=np.int64)
    for at, job in enumerate(jobs):
        kinds = kinds_of(_asked_of(job, names.setdefault(job.name, len(names))))
        kinds["burst"] = _burst_of(job, kinds["twin"], bursts)
        for place, (key, kind) in enumerate(kinds.items()):
            if kind is not None:
                rows[at, place] = numbers.setdefault((key, kind), len(numbers))
                part = PARTS[place] if place < SHARED and job.user else 0
                if part >= len(KEYS):
                    own = (key, kind, job.user)
                    rows[at, part] = numbers.setdefault(own, len(numbers))
    return rows


def _asked_of(job: TraceJob, name: int) -> Asked:
    """name: a number for the text, in place of a digest."""
    of_user = job.user, job.account, job.partition or _ONLY, job.qos
    asks = job.gpus, tuple(map(GpuType, job.gpu_types)), job.time_limit_s
    return Asked(*of_user, *asks, None, Kinds(name), job.request(), (job.partition or _ONLY,))


def _burst_of(
    job: TraceJob, twin: object, bursts: dict[object, tuple[float, float]]
) -> tuple[object, ...]:
    """Jobs that ask for the same, each submitted soon after the one before."""
    began_s, last_s = bursts.get(twin, (job.submit_s, job.submit_s))
    if job.submit_s - last_s > BURST_S:
        began_s = job.submit_s
    bursts[twin] = began_s, job.submit_s
    return twin, began_s


def runs_of(jobs: Sequence[TraceJob]) -> FloatArray:
    """(n,) how long each will run, which only targets and figures may use."""
    return np.array([min(j.duration_s, j.time_limit_s) for j in jobs])


def layers_of(predictor: Predictor) -> Layers:
    """A predictor's weights in the form that the compiled forward reads."""
    w = predictor.weights
    arrays = []
    for layer in LAYERS:
        arrays += [np.ascontiguousarray(w[f"{layer}.weight"].T), w[f"{layer}.bias"]]
    return Layers(*arrays)
