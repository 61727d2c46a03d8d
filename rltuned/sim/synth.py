"""Generators of traces, calibrated to published marginals. Same seed, same trace."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rltuned.errors import TraceError
from rltuned.sim.limits import Habits, Strength, draw_limits, scripts_of, users_of
from rltuned.sim.trace import Trace, TraceJob

FloatArray = NDArray[np.float64]
Generator = np.random.Generator

USER_SHARE = 0.4
"""Part of the variance of ln(run time) that lies between users: their next job resembles their
last ones, which is what history-based predictors live on."""


@dataclass(frozen=True, slots=True)
class Marginals:
    """Marginals of one kind of cluster.

    Attributes:
        sizes: GPUs per job -> share of jobs.
        ln_run: mean and standard deviation of ln(run time in seconds).
        max_run_s: longest run.
        gap_s: mean seconds between submits at the source's own size.
        burst: shape of the Weibull gaps; 1 = Poisson, smaller = burstier.
        types: GPU type a job is bound to -> share; empty = every job is free.
        users: how many.
        source: where the numbers come from.
    """

    sizes: dict[int, float]
    ln_run: tuple[float, float]
    max_run_s: float
    gap_s: float
    burst: float
    types: dict[str, float]
    users: int
    source: str


SHAPES = {
    "philly-like": Marginals(
        sizes={1: 0.867, 2: 0.023, 4: 0.050, 8: 0.050, 16: 0.0074, 32: 0.0020},
        ln_run=(math.log(1_250), 2.51),
        max_run_s=60 * 86_400.0,
        gap_s=65.0,
        burst=0.40,
        types={},
        users=319,
        source="marginals of Microsoft Philly, October 2017 (Jeon et al., ATC'19)",
    ),
    "helios-like": Marginals(
        sizes={1: 0.55, 2: 0.05, 4: 0.06, 8: 0.22, 16: 0.06, 32: 0.04, 64: 0.02},
        ln_run=(math.log(204), 2.986),
        max_run_s=50 * 86_400.0,
        gap_s=125.0,
        burst=0.45,
        types={},
        users=277,
        source="marginals of SenseTime Helios Venus (Hu et al., SC'21)",
    ),
    "pai-like": Marginals(
        sizes={1: 0.957, 2: 0.036, 4: 0.004, 8: 0.003},
        ln_run=(6.59, 2.10),
        max_run_s=30 * 86_400.0,
        gap_s=13.0,
        burst=0.60,
        types={"MISC": 0.571, "T4": 0.360, "P100": 0.048, "V100": 0.021},
        users=1_242,
        source="marginals of Alibaba PAI 2020 (Weng et al., NSDI'22)",
    ),
}


def synthesize(
    kind: str, *, jobs: int, seed: int, limits: Strength = "weak", free_share: float = 0.0
) -> Trace:
    """A trace of one of the kinds in KINDS.

    kind: `philly-like`, `helios-like`, `pai-like` or `testbed-1024`. limits: how much the time
    limits tell of the run times. free_share: part of the jobs that accept other GPU types than
    their own.

    Raises TraceError: no such kind, or a number that makes no sense.
    """
    if kind not in KINDS:
        raise TraceError(f"no generator named {kind!r}; there are {', '.join(KINDS)}")
    if jobs < 1 or not 0 <= free_share <= 1:
        raise TraceError("a generator needs at least one job and a free share within 0..1")
    shape = SHAPES.get(kind)
    if shape is None:
        made = _testbed(jobs, np.random.default_rng(seed), limits, free_share)
    else:
        made = jobs_of(shape, jobs=jobs, seed=seed, limits=limits, free_share=free_share)
    notes = {
        "source": f"rltuned generator {kind}; {shape.source if shape else TESTBED}",
        "licence": "Apache-2.0 (generated)",
        "synthetic": "every column",
        "limits": limits,
        "seed": str(seed),
    }
    return Trace(made, notes)


def jobs_of(
    shape: Marginals,
    *,
    jobs: int,
    seed: int,
    limits: Strength,
    free_share: float = 0.0,
    habits: Habits | None = None,
) -> tuple[TraceJob, ...]:
    """Jobs of any marginals, drawn as those of the kinds in SHAPES are; habits: of named jobs."""
    rng = np.random.default_rng(seed)
    users = users_of(jobs, shape.users, habits.away if habits else 0.0, rng)
    habit = rng.standard_normal(shape.users)[users]
    script: NDArray[np.int64] | None = None
    if habits is None:
        own = rng.standard_normal(jobs)
    else:
        script, own = scripts_of(users, habits, rng)
    run_s = _runs(habit, own, shape)
    submit_s = _submits(jobs, shape.gap_s, shape.burst, rng)
    gpus = _pick(shape.sizes, jobs, rng)
    if script is not None:
        gpus = gpus[script]  # there are fewer scripts than jobs
    types = _pick(shape.types, jobs, rng).tolist() if shape.types else [""] * jobs
    free = rng.random(jobs) < free_share
    names = [f"u{user:04d}" for user in users]
    limit_s = draw_limits(run_s, limits, rng, names)
    return tuple(
        TraceJob(
            job_id=str(i + 1),
            submit_s=float(submit_s[i]),
            duration_s=float(run_s[i]),
            time_limit_s=float(limit_s[i]),
            gpus=int(gpus[i]),
            gpu_types=() if free[i] or not types[i] else (types[i],),
            cpus=4 * int(gpus[i]),
            mem_mib=16_000 * int(gpus[i]),
            user=names[i],
            name="" if script is None else _letters(int(script[i])),
        )
        for i in range(jobs)
    )


def _letters(number: int) -> str:
    """A name without digits, which do not count in one."""
    text = ""
    while number or not text:
        number, place = divmod(number, 26)
        text += chr(ord("a") + place)
    return text


def _runs(habit: FloatArray, own: FloatArray, shape: Marginals) -> FloatArray:
    """(n,) whole seconds; exact in mean and spread of the logarithm whatever the users drew.

    habit: (n,) of each job's user; own: (n,) deviation of each job from it.
    """
    mixed = math.sqrt(USER_SHARE) * habit + math.sqrt(1 - USER_SHARE) * own
    if len(mixed) > 1:
        mixed = (mixed - mixed.mean()) / mixed.std()
    mean, spread = shape.ln_run
    return np.clip(np.rint(np.exp(mean + spread * mixed)), 1.0, shape.max_run_s)


def _submits(count: int, gap_s: float, burst: float, rng: Generator) -> FloatArray:
    """(n,) whole seconds from 0."""
    gaps = rng.weibull(burst, size=count) * gap_s / math.gamma(1 + 1 / burst)
    gaps[0] = 0.0
    return np.rint(np.cumsum(gaps))


def _pick(shares: Mapping[Any, float], count: int, rng: Generator) -> NDArray[Any]:
    """(count,) of the keys."""
    weights, keys = np.array(list(shares.values())), np.array(list(shares))
    return keys[rng.choice(len(keys), size=count, p=weights / weights.sum())]


TESTBED = "job mix and hardware of RLTune's testbed (SoCC 2025)"
TESTBED_MIX = (
    ("m40", 1, 27),
    ("p100", 1, 31),
    ("p100", 2, 50),
    ("p100", 4, 58),
    ("k80", 1, 30),
    ("k80", 2, 60),
)
"""GPU type, GPUs and jobs of the 256-job list that RLTune's authors ran; 1,024 is four of them."""
TESTBED_LOAD = 1.15
"""Mean GPU demand offered, as a part of the 13 GPUs: the queue grows slowly, as in the paper."""
TESTBED_GPUS = 13
ANY_TYPE_SHARE = 0.5
"""Of the jobs that are not bound to their own type: those that accept any, not a list of two."""
TRAINING_SHARE = 0.6
"""The other jobs are short inference runs."""
TESTBED_ALSO = {"p100": ("k80", "m40"), "k80": ("p100", "m40"), "m40": ("p100", "k80")}


def _testbed(
    count: int, rng: Generator, limits: Strength, free_share: float
) -> tuple[TraceJob, ...]:
    """Deep-learning jobs for the 13-GPU testbed.

    Half of the jobs that are not bound to their type accept a list of two types, half accept any.
    """
    rows = [(t, g) for t, g, n in TESTBED_MIX for _ in range(n)]
    mix = (rows * (count // len(rows) + 1))[:count] if count >= len(rows) else rows
    kinds = [mix[i] for i in rng.permutation(len(mix))[:count]]
    # training runs of a quarter to three hours, inference of minutes
    train = rng.random(count) < TRAINING_SHARE
    run_s = np.where(
        train,
        np.exp(math.log(3_000) + 0.7 * rng.standard_normal(count)),
        np.exp(math.log(420) + 0.8 * rng.standard_normal(count)),
    )
    run_s = np.clip(np.rint(run_s), 20.0, 6 * 3_600.0)
    gpus = np.array([g for _, g in kinds], dtype=np.float64)
    gap_s = float((run_s * gpus).mean()) / (TESTBED_LOAD * TESTBED_GPUS)
    submit_s = _submits(count, gap_s, 0.8, rng)
    limit_s = draw_limits(run_s, limits, rng)
    if limits != "none":
        limit_s = np.minimum(limit_s, 86_400.0)
    users = users_of(count, 12, 0.0, rng)
    return tuple(
        TraceJob(
            job_id=str(i + 1),
            submit_s=float(submit_s[i]),
            duration_s=float(run_s[i]),
            time_limit_s=float(limit_s[i]),
            gpus=kinds[i][1],
            gpu_types=_accepted(kinds[i][0], kinds[i][1], rng.random(2), free_share),
            cpus=4 * kinds[i][1],
            mem_mib=12_000 * kinds[i][1],
            user=f"user{users[i] + 1:02d}",
            account="lab" if users[i] % 3 else "course",
        )
        for i in range(count)
    )


def _accepted(own: str, gpus: int, draws: FloatArray, free_share: float) -> tuple[str, ...]:
    if draws[0] >= free_share:
        return (own,)
    if draws[1] < ANY_TYPE_SHARE or gpus > 1:
        return ()
    return (own, TESTBED_ALSO[own][0])


KINDS = (*SHAPES, "testbed-1024")
