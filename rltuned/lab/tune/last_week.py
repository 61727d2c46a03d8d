"""Would it help here? The last seven days of a record under Slurm's own order and under rltuned's.

What came before is played too, so that the week begins with the queue that it had; run times are
predicted by what had ended until each job came. Slurm places as the site's own sched/backfill does.
One play of each order: chance is of stretches of arrival.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from rltuned.errors import TooLittleError
from rltuned.lab.backtest.calibration import calibrate
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.site import with_own_backfill
from rltuned.lab.compare import change_of_mean
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.stats import DAY_S, stretches_of
from rltuned.lab.tune.night import check_part
from rltuned.lab.tune.search import Candidate, Period
from rltuned.policies.tune_state import LastWeek

DAYS: Final = 7.0


def replayed(past: Past, order: Candidate, daemon: Protocol, at: float) -> LastWeek:
    """Replay the last week that jobs came in. at: Unix seconds, when this is. Raises
    TooLittleError: too few jobs came in it.
    """
    if not past.scored.any():
        raise TooLittleError("no job of the record is scored")
    last_s = float(past.arrived_s[past.scored].max())
    begin_s = max(float(past.arrived_s[past.scored].min()), last_s - DAYS * DAY_S)
    check_part(past, begin_s, np.inf, "last week")
    past = replace(past, site=with_own_backfill(past.site)).switched_on(begin_s)
    week = Period(past, daemon)
    own = week.play(order)
    wait = change_of_mean(week.natural.wait_s, own.wait_s, stretches_of(past.arrived_s[past.later]))
    return LastWeek(
        at=at,
        begin=past.begin + begin_s,
        until=past.begin + last_s,
        jobs=len(week),
        order=order.name,
        verdict=calibrate(past, week.played).later.verdict,
        slurm_wait_s=wait.base,
        wait_s=wait.own,
        change=wait.change,
        low=wait.low,
        high=wait.high,
        slurm_longest_s=week.natural.longest_s,
        longest_s=own.longest_s,
    )
