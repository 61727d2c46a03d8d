"""The setting that a backtest advises: chosen before its switch as a night does, judged after it.

Search, price and verdict are those of a night. The test period is the later part of the record,
which nothing of the choice has seen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rltuned.core.order import DEFAULT, Order, Policy
from rltuned.errors import TooLittleError
from rltuned.lab.backtest.past import Past
from rltuned.lab.compare import Comparison, JobScores
from rltuned.lab.replay.protocol import BY_DEFAULT, Protocol, policy_of
from rltuned.lab.tune.night import (
    change_of,
    check_part,
    price_broken,
    price_words,
    training_before,
    verdict,
)
from rltuned.lab.tune.results import difference_json
from rltuned.lab.tune.search import Alternatives, Candidate, Period, search
from rltuned.policies.predictor import Predictor

COPIES: Final = 3
"""Of the later part, with the record itself; see compare.pooled."""
FCFS, PLAIN, CURRENT, CHOSEN = "first come, first served", "the default", "in force", "chosen"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One order on the later part. change: against first come, first served; None = it is that."""

    candidate: Candidate
    copies: tuple[JobScores, ...]
    change: Comparison | None

    def mean(self, figure: Callable[[JobScores], float]) -> float:
        """Over the copies."""
        return fmean(figure(one) for one in self.copies)


@dataclass(frozen=True, slots=True)
class Advice:
    """What an administrator should do. lines: of rltuned.toml; none = nothing is to be changed.

    why: what speaks against the order that leads on the earlier part, and what a higher price would
    buy. orders: by what they are.
    """

    sentence: str
    lines: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    orders: Mapping[str, Replayed] = field(default_factory=dict)


def advise(
    past: Past,
    policies: Sequence[tuple[Policy, Path | None]],
    order: Order,
    learn: Callable[[Past], Predictor],
    predictor: Predictor,
    *,
    price: float,
    daemon: Protocol,
    on_play: Callable[[str], None] = lambda _name: None,
) -> Advice:
    """Choose on the earlier part, judge on the later one; too few jobs give a sentence alone.

    policies: the first is in force, see search.policies_of for the others. learn: what is known of
    run times when the training period's second part begins. predictor: of the later part, the same
    for all orders.
    """
    _, switch_s, end_s = training_before(past, past.split_s)
    try:
        check_part(past, switch_s, end_s, "second half of the part before the switch")
    except TooLittleError as error:
        return Advice(f"No setting is chosen: {error}. Take a longer record.")

    def may_play(name: str) -> bool:
        on_play(name)
        return True

    began = past.switched_on(switch_s)
    known = learn(began)
    (policy, bundle), *others = policies
    incumbent = _candidate(policy, order, known, bundle)
    default = _candidate(policy_of(BY_DEFAULT), DEFAULT, known)  # type: ignore[arg-type]
    searched = search(
        began,
        end_s,
        incumbent,
        Alternatives(others),
        price=price,
        daemon=daemon,
        also=[default],
        may_play=may_play,
    )
    best = searched.best
    candidates = _shown(incumbent, default, None if best is None else best.candidate)
    test, scores = Period(past, daemon), dict[str, list[JobScores]]()
    for name, candidate in candidates.items():
        late = replace(candidate, predictor=predictor)
        scores[name] = []
        for copy in range(COPIES):
            on_play(f"{name}, copy {copy}")
            scores[name].append(test.play(late, copy))
    orders = {
        name: Replayed(
            candidate,
            tuple(scores[name]),
            None if name == FCFS else change_of(test, scores[FCFS], scores[name]),
        )
        for name, candidate in candidates.items()
    }
    now = _name_of(incumbent, candidates)
    more = tuple(price_words(searched, price)[-1:]) if searched.next_step else ()
    why: tuple[str, ...] = ()
    # first come, first served may pass where another order led before the switch, and no third one
    tries = [] if best is None else [_name_of(best.candidate, candidates)]
    for name in [n for n in dict.fromkeys([*tries, FCFS]) if n != now]:
        found = change_of(test, scores[now], scores[name])
        broken = price_broken(test, scores[now][0], scores[name][0], price)
        doubts = tuple(verdict(found, candidates[name], broken))
        if not doubts:
            return Advice(*_change(name, found, orders, incumbent), (*why, *more), orders)
        if name in tries:
            why = doubts
    return Advice(_stays(now, why, orders), (), (*why, *more), orders)


def _shown(
    incumbent: Candidate, default: Candidate, chosen: Candidate | None
) -> dict[str, Candidate]:
    """What is played after the switch, each order once."""
    found = {FCFS: incumbent.first_come(), PLAIN: default}
    more = {CURRENT: incumbent} | ({} if chosen is None else {CHOSEN: chosen})
    for name, candidate in more.items():
        if not any(candidate.same_as(other) for other in found.values()):
            found[name] = candidate
    return found


def _name_of(candidate: Candidate, among: Mapping[str, Candidate]) -> str:
    return next(name for name, other in among.items() if candidate.same_as(other))


def _candidate(
    policy: Policy, order: Order, predictor: Predictor, bundle: Path | None = None
) -> Candidate:
    return Candidate(policy, order.own, order.share, order.max_delay_s, predictor, bundle=bundle)


def _change(
    name: str, found: Comparison, orders: Mapping[str, Replayed], incumbent: Candidate
) -> tuple[str, tuple[str, ...]]:
    """The advice to change something, and the lines to write."""
    taken, wait = orders[name].candidate, found.wait
    what = {FCFS: "Plain first come, first served is best here", PLAIN: "The default is best here"}
    text = (
        f"{what.get(name, 'Another setting is better here')}: on the part after the switch mean "
        f"wait {wait} against the order in force{_beside_fcfs(orders[name])}. Write:"
    )
    lines = [f"own = {taken.own:g}", f"share = {taken.share:g}"]
    if taken.max_delay_s != incumbent.max_delay_s and not taken.is_first_come:
        lines.append(f"max_delay_s = {taken.max_delay_s:g}")
    policy, now = taken.policy, incumbent.policy
    if taken.is_first_come or (policy.name, policy.trust) == (now.name, now.trust):
        return text, ("[order]", *lines)
    above = [f'name = "{policy.name}"'] if policy.name != now.name else []
    above += [] if policy.trust is None else [f"trust = {policy.trust:g}"]
    return text, ("[policy]", *above, "[order]", *lines)


def _stays(now: str, why: tuple[str, ...], orders: Mapping[str, Replayed]) -> str:
    candidate = orders[now].candidate
    what = {FCFS: "First come, first served", PLAIN: "The default"}.get(now, "Your setting")
    reason = (
        f"what leads before the switch does not hold after it: {why[0]}"
        if why
        else "no other setting that keeps tune.longest leads on the part before the switch"
    )
    return (
        f"{what} stays (own = {candidate.own:g}, share = {candidate.share:g})"
        f"{_beside_fcfs(orders[now])}: {reason}."
    )


def _beside_fcfs(one: Replayed) -> str:
    if one.change is None:
        return ""
    return f", {one.change.wait} against first come, first served"


def advice_json(advice: Advice) -> dict[str, Any]:
    """As plain data for JSON and page."""
    return {
        "sentence": advice.sentence,
        "lines": list(advice.lines),
        "why": list(advice.why),
        "copies": COPIES if advice.orders else 0,
        "orders": {name: _order_json(one) for name, one in advice.orders.items()},
    }


def _order_json(one: Replayed) -> dict[str, Any]:
    candidate = one.candidate
    return {
        "policy": candidate.policy.name,
        "trust": candidate.policy.trust,
        "own": candidate.own,
        "share": candidate.share,
        "max_delay_s": candidate.max_delay_s,
        "wait_s": one.mean(lambda s: s.mean_s),
        "wait_p99_s": one.mean(lambda s: s.tail_s),
        "wait_max_s": one.mean(lambda s: s.longest_s),
        "bsld": one.mean(lambda s: float(s.bsld.mean())),
        "against_fcfs": None if one.change is None else difference_json(one.change),
    }
