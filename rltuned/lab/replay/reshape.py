"""Cut, scale and jitter traces, and say what is in one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rltuned.errors import TraceError
from rltuned.lab.replay.trace_file import from_zero
from rltuned.sim.limits import spearman
from rltuned.sim.trace import Trace, TraceJob

FloatArray = NDArray[np.float64]

TOLERANCE: Final = 1e-4
"""Part of the asked load by which a scaled trace may be off."""
MOST_STRETCH: Final = 1e6


def offered_gpus(jobs: Sequence[TraceJob]) -> float:
    """Mean GPU demand over the arrival span, were every job started when submitted. The tails of
    the longest jobs beyond it do not count. Raises TraceError: all are submitted at one instant.
    """
    offered = demand(*_arrays(jobs))
    if math.isinf(offered):
        raise TraceError("all jobs are submitted at one instant: there is no load to speak of")
    return offered


def demand(submit_s: FloatArray, runs_s: FloatArray, gpus: FloatArray) -> float:
    """The same of arrays (n,); infinite where all jobs are submitted at one instant."""
    span_s = float(submit_s[-1] - submit_s[0])
    if not span_s > 0:
        return math.inf
    return float((gpus * np.minimum(runs_s, submit_s[-1] - submit_s)).sum() / span_s)


def scale(trace: Trace, load: float, cluster_gpus: int) -> Trace:
    """Stretch the submits until the trace offers `load` x cluster_gpus GPUs. Raises TraceError."""
    if not load > 0 or cluster_gpus < 1:
        raise TraceError(f"cannot offer a load of {load:g} to {cluster_gpus} GPUs")
    wanted = load * cluster_gpus
    low, high = 1 / MOST_STRETCH, MOST_STRETCH
    submit_s, runs_s, gpus = _arrays(trace.jobs)
    since_s = submit_s - submit_s[0]
    offered_gpus(trace.jobs)  # refuses what has no load
    if demand(since_s * low, runs_s, gpus) < wanted:
        raise TraceError(f"even {len(trace.jobs)} jobs at once do not offer {wanted:g} GPUs")
    while high / low > 1 + TOLERANCE / 10:
        middle = (low * high) ** 0.5
        if demand(since_s * middle, runs_s, gpus) > wanted:
            low = middle
        else:
            high = middle
    jobs = _stretched(trace.jobs, high)
    if abs(offered_gpus(jobs) / wanted - 1) > TOLERANCE:
        raise TraceError(f"no stretching of this trace offers {wanted:g} GPUs")
    notes = trace.notes | {
        "scaled": f"submit times x {high:.6g}: mean demand {load:g} of {cluster_gpus} GPUs"
    }
    return Trace(jobs, notes)


def jittered(trace: Trace, jitter_s: float, seed: int) -> Trace:
    """The same jobs, each submitted up to jitter_s earlier or later, in the new order."""
    rng = np.random.default_rng(seed)
    shift = rng.uniform(-jitter_s, jitter_s, size=len(trace.jobs))
    moved = [
        replace(j, submit_s=round(j.submit_s + float(d), 3))
        for j, d in zip(trace.jobs, shift, strict=True)
    ]
    moved.sort(key=lambda j: j.submit_s)
    notes = trace.notes | {"jitter": f"submit times +-{jitter_s:g} s, seed {seed}"}
    return Trace(from_zero(moved), notes)


def cut(trace: Trace, start: int, count: int) -> Trace:
    """Consecutive jobs from row `start` on, submits from the first. Raises TraceError."""
    if start < 0 or count < 1 or start + count > len(trace.jobs):
        raise TraceError(f"rows {start}..{start + count - 1} of {len(trace.jobs)} do not exist")
    notes = trace.notes | {"window": f"rows {start} to {start + count - 1}, from 0"}
    return Trace(from_zero(trace.jobs[start : start + count]), notes)


def describe(trace: Trace) -> dict[str, Any]:
    """Measure the marginals; GPU jobs only for run times and sizes when there are any. sizes: GPUs
    -> share of jobs; figures of limits None = there are none.
    """
    jobs = [j for j in trace.jobs if j.gpus] or list(trace.jobs)
    submit_s, _, gpus = _arrays(jobs)
    run_s = np.array([j.duration_s for j in jobs])
    gaps = np.diff(np.array([j.submit_s for j in trace.jobs]))
    limit_s = np.array([j.time_limit_s for j in jobs])
    has = np.isfinite(limit_s)
    sizes, counts = np.unique(gpus.astype(np.int64), return_counts=True)
    return {
        "jobs": len(trace.jobs),
        "gpu_jobs": sum(j.gpus > 0 for j in trace.jobs),
        "span_s": trace.jobs[-1].submit_s - trace.jobs[0].submit_s,
        "run_mean_s": float(run_s.mean()),
        "run_median_s": float(np.median(run_s)),
        "gap_mean_s": float(gaps.mean()) if len(gaps) else 0.0,
        "gap_median_s": float(np.median(gaps)) if len(gaps) else 0.0,
        "gap_cv": float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() else 0.0,
        "gpus_mean": float(gpus.mean()),
        "sizes": {int(s): float(c) / len(jobs) for s, c in zip(sizes, counts, strict=True)},
        "offered_gpus": offered_gpus(jobs) if submit_s[-1] > submit_s[0] else None,
        "users": len({j.user for j in trace.jobs}),
        "partitions": len({j.partition for j in trace.jobs}),
        "with_limit": float(has.mean()),
        "use_median": float(np.median(run_s[has] / limit_s[has])) if has.any() else None,
        "limit_spearman": _correlation(run_s[has], limit_s[has]) if has.any() else None,
        "cut_by_limit": float((run_s > limit_s).mean()),
    }


def _correlation(run_s: FloatArray, limit_s: FloatArray) -> float | None:
    found = spearman(run_s, limit_s)
    return None if np.isnan(found) else found


def _arrays(jobs: Sequence[TraceJob]) -> tuple[FloatArray, FloatArray, FloatArray]:
    return (
        np.array([j.submit_s for j in jobs]),
        np.array([min(j.duration_s, j.time_limit_s) for j in jobs]),
        np.array([j.gpus for j in jobs], dtype=np.float64),
    )


def _stretched(jobs: Sequence[TraceJob], factor: float) -> tuple[TraceJob, ...]:
    first = jobs[0].submit_s
    return tuple(replace(j, submit_s=first + (j.submit_s - first) * factor) for j in jobs)
