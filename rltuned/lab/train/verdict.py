"""Is an actor better than the rule? On windows that chose nothing, before it is exported."""

from collections.abc import Sequence
from typing import Final

from rltuned.errors import ModelError
from rltuned.lab.compare import geometric
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.course import LEARN_UNTIL, TEST_FROM, DatasetSource
from rltuned.lab.train.network import TorchActor
from rltuned.lab.train.trial import DIGITS, RULE, Trial, windows_between
from rltuned.policies.card import Verdict

WINDOWS: Final = 3
"""Of each trace after TEST_FROM; of each random world one."""


def unseen_windows(
    sources: Sequence[DatasetSource],
    worlds: Sequence[DatasetSource],
    *,
    size: int,
    loads: Sequence[float],
) -> list[Scenario]:
    """Windows that neither trained nor chose anything; shorter ones where none of `size` jobs has
    room. worlds: random ones that a training has not met.
    """
    parts = [(s.scenario, (TEST_FROM, 1.0), WINDOWS) for s in sources]
    parts += [(s.scenario, (LEARN_UNTIL, 1.0), 1) for s in worlds]
    room = max(
        int(len(scenario) * part[1]) - int(len(scenario) * part[0]) for scenario, part, _ in parts
    )
    found: list[Scenario] = []
    for scenario, part, count in parts:
        turned = [loads[(len(found) + i) % len(loads)] for i in range(count)]
        jobs = max(min(size, room), 2)
        found += windows_between(scenario, part, count=count, size=jobs, loads=turned)
    return found


def judged(actor: TorchActor, windows: Sequence[Scenario]) -> Verdict | None:
    """The actor against the rule, window by window, by wait, slowdown and tail together; None =
    there are no windows.
    """
    if not windows:
        return None
    trial = Trial.of(windows, "mix", (RULE,))
    found = geometric(trial.totals(actor), trial.rules[RULE])
    low, high = found.low, found.high
    return Verdict(
        word=found.word,
        change=round(found.change or 0.0, DIGITS),
        low=None if low is None else round(low, DIGITS),
        high=None if high is None else round(high, DIGITS),
        windows=len(windows),
    )


def allow(verdict: Verdict | None, *, force: bool) -> None:
    """Raises ModelError: it is worse than the rule, and is not forced."""
    if verdict is not None and verdict.word == "worse" and not force:
        raise ModelError(f"not exported: {verdict}; --force exports it all the same")
