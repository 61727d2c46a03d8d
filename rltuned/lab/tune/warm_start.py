"""Imitation of the site's own Slurm: where PPO of a night begins, if that is asked for.

What the network reads is what the daemon shows it, the predictions of the site's predictor too.
Labels are starts by Slurm's main scheduler before the split; nothing that came after is looked at.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.core.run_times import LOG_FULL
from rltuned.domain.context import RunTime
from rltuned.lab.backtest.past import Past
from rltuned.lab.train.history import FITTING, Started, choices_of
from rltuned.lab.train.imitated import imitate_into
from rltuned.lab.train.network import module_of
from rltuned.lab.train.predictor import foreseen
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import Predictor

MOST_STARTS: Final = 2_000
LEARNED_PART: Final = 0.8


def imitated(past: Past, bundle: Path, predictor: Predictor, out: Path, *, seed: int) -> str:
    """The bundle's network, fitted to the order in which this site's Slurm started jobs; a
    sentence.

    past: switched on where what may be learned ends. out: folder of the new bundle; must not exist.

    Raises:
        FloatingPointError: the loss is no longer finite.
        ModelError: a bundle cannot be used or written.
        TraceError: the record shows too few starts by the main scheduler.
    """
    actor = load_actor(bundle)
    form, starts = actor.card.architecture, started_by_split(past, predictor)
    choices = choices_of(starts, past.site.cluster.gpus, most=MOST_STARTS, kind=form.kind)
    queues = choices.split(LEARNED_PART)
    fitting = replace(FITTING, hidden=form.hidden, reach=form.reach, seed=seed)
    text = f"{len(queues[0])} starts with rivals of the site's own"
    agreed = imitate_into(
        out,
        queues,
        fitting,
        order="the site's own Slurm",
        data=text,
        command="rltuned tune",
        begin=module_of(actor.network).train(),
    )
    return f"imitates the site's own Slurm on {agreed:.1%} of the pairs not learned from"


def started_by_split(past: Past, predictor: Predictor) -> list[Started]:
    """What is known at the split of the jobs that had come by then."""
    count = int(np.searchsorted(past.arrived_s, past.split_s))
    jobs = past.jobs[:count]
    ran = np.array([i + 1 in past.running for i in range(count)], dtype=bool)
    start_s = past.started_s[:count]
    start_s[start_s >= past.split_s] = math.inf
    found = foreseen(predictor, jobs, start_s=start_s)
    low_s, median_s, high_s = np.expm1(found.quantiles.astype(np.float64) * LOG_FULL).T
    each = zip(found.plan_s, found.mean_s, low_s, median_s, high_s, strict=True)
    run_times = [
        RunTime(float(plan), float(mean), float(low), float(middle), float(high), ends=0)
        for plan, mean, low, middle, high in each
    ]
    started = []
    for i, (job, run_time) in enumerate(zip(jobs, run_times, strict=True)):
        end_s = float(past.ended_s[i])
        started.append(
            Started(
                job_id=i + 1,
                submit_s=float(past.arrived_s[i]),
                eligible_s=float(past.arrived_s[i]),
                start_s=float(start_s[i]),
                end_s=end_s if end_s <= past.split_s else math.inf,
                request=job.request(),
                partition=job.partition,
                by_main=bool(past.by_main[i] and start_s[i] < math.inf and not ran[i]),
                run_time=run_time,
            )
        )
    return started
