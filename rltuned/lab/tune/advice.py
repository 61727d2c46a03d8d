"""The setting that a backtest advises: chosen before its switch as a night does, judged after it.

Training period, promise, choice and verdict are those of a night. The test period is the later part
of the record, which nothing of the choice has seen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final

from rltuned.core.order import DEFAULT, Order, Policy
from rltuned.errors import TooLittleError
from rltuned.lab.backtest.past import Past
from rltuned.lab.compare import Comparison, JobScores, compared, pooled
from rltuned.lab.replay.policy import DEFAULT_POLICY
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.tune.candidates import (
    Choice,
    Course,
    Entrant,
    Family,
    TrainingPeriod,
    pick,
)
from rltuned.lab.tune.night import check_part, training_before
from rltuned.lab.tune.promise import Promise, verdict
from rltuned.lab.tune.results import difference_json
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import Predictor

COPIES: Final = 3
"""Of the later part, with the record itself; see compare.pooled."""
FCFS, PLAIN, CURRENT, CHOSEN = "first come, first served", "the default", "in force", "chosen"


@dataclass(frozen=True, slots=True)
class Tested:
    """One order on the later part. changes: against first come, first served; None = it is that."""

    entrant: Entrant
    copies: tuple[JobScores, ...]
    changes: Comparison | None

    def mean(self, figure: Callable[[JobScores], float]) -> float:
        """Over the copies."""
        return fmean(figure(one) for one in self.copies)


@dataclass(frozen=True, slots=True)
class Advice:
    """What an administrator should do. lines: of rltuned.toml; none = nothing is to be changed.

    why: what speaks against the order that leads on the earlier part. orders: by what they are.
    """

    sentence: str
    lines: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    orders: Mapping[str, Tested] = field(default_factory=dict)


def advise(
    past: Past,
    policy: Policy,
    order: Order,
    learn: Callable[[Past], Predictor],
    predictor: Predictor,
    *,
    promise: Promise,
    daemon: Protocol,
    on_play: Callable[[str], None] = lambda _name: None,
) -> Advice:
    """Choose on the earlier part, judge on the later one; too few jobs give a sentence alone.

    policy, order: those in force. learn: what is known of run times when the training period's
    second part begins. predictor: of the later part, the same for all orders. promise, daemon: as
    in a night.
    """
    _, switch_s, end_s = training_before(past, past.split_s)
    try:
        check_part(past, switch_s, end_s, "second half of the part before the switch")
    except TooLittleError as error:
        return Advice(f"No setting is chosen: {error}. Take a longer record.")
    began = past.switched_on(switch_s)
    known = learn(began)
    incumbent = _entrant(policy, order, known)
    training = TrainingPeriod(began, end_s, incumbent, promise, daemon, on_play=on_play)
    default = _entrant(BASELINES[DEFAULT_POLICY], DEFAULT, known)
    choices = [training.choose(incumbent.family)]
    choices += [] if default.same_as(incumbent) else [training.alone(default)]
    best = pick(choices, incumbent)
    test = Course(past, daemon)
    return _judged(test, promise, predictor, incumbent, best, on_play=on_play)


def _judged(
    test: Course,
    promise: Promise,
    predictor: Predictor,
    incumbent: Entrant,
    best: Choice | None,
    *,
    on_play: Callable[[str], None],
) -> Advice:
    """What holds on the later part too."""
    scores: dict[str, list[JobScores]] = {}
    for name, entrant in (entrants := _shown(incumbent, best)).items():
        late = replace(entrant, family=replace(entrant.family, predictor=predictor))
        scores[name] = []
        for copy in range(COPIES):
            on_play(f"{name}, copy {copy}")
            scores[name].append(test.play(late, copy))

    def against(base: str, own: str) -> Comparison:
        pairs = zip(scores[base], scores[own], strict=True)
        return pooled([compared(one, other, test.jobs.days) for one, other in pairs])

    orders = {
        name: Tested(entrant, tuple(scores[name]), None if name == FCFS else against(FCFS, name))
        for name, entrant in entrants.items()
    }
    now = _name_of(incumbent, entrants)
    why: tuple[str, ...] = ()
    # first come, first served may pass where another order led before the switch, and no third one
    tries = dict.fromkeys([_name_of(best.entrant, entrants)] if best is not None else [])
    for name in [n for n in (*tries, FCFS) if n != now]:
        found = against(now, name)
        broken = promise.broken(test.jobs, test.natural, scores[now][0], scores[name][0])
        # the policy is one that is in force or a rule: its ranges are not in question here
        doubts = verdict(found, broken, ranges_known=True, same=False)
        if not doubts:
            return Advice(*_change(name, found, orders, incumbent), why, orders)
        if name in tries:
            why = tuple(doubts)
    return Advice(_stays(now, why, orders), (), why, orders)


def _shown(incumbent: Entrant, best: Choice | None) -> dict[str, Entrant]:
    """What is played after the switch, each order once."""
    family = incumbent.family
    plain = _entrant(BASELINES[DEFAULT_POLICY], DEFAULT, family.predictor)
    found = {FCFS: replace(incumbent, own=0.0, share=0.0), PLAIN: plain}
    more = {CURRENT: incumbent} | ({} if best is None else {CHOSEN: best.entrant})
    for name, entrant in more.items():
        if not any(entrant.same_as(other) for other in found.values()):
            found[name] = entrant
    return found


def _name_of(entrant: Entrant, among: Mapping[str, Entrant]) -> str:
    return next(name for name, other in among.items() if entrant.same_as(other))


def _entrant(policy: Policy, order: Order, predictor: Predictor | None) -> Entrant:
    family = Family(policy.name, (policy,), predictor)
    return Entrant(family, policy, order.own, order.share, order.max_delay_s)


def _change(
    name: str, found: Comparison, orders: Mapping[str, Tested], incumbent: Entrant
) -> tuple[str, tuple[str, ...]]:
    """The advice to change something, and the lines to write."""
    taken, wait = orders[name].entrant, found.wait
    what = {FCFS: "Plain first come, first served is best here", PLAIN: "The default is best here"}
    text = (
        f"{what.get(name, 'Another setting is better here')}: on the part after the switch mean "
        f"wait {wait} against the order in force{_beside_fcfs(orders[name])}. Write:"
    )
    lines = [f"own = {taken.own:g}", f"share = {taken.share:g}"]
    if taken.max_delay_s != incumbent.max_delay_s and not taken.is_first_come:
        lines.append(f"max_delay_s = {taken.max_delay_s:g}")
    if taken.policy.name != incumbent.policy.name and not taken.is_first_come:
        return text, ("[policy]", f'name = "{taken.policy.name}"', "[order]", *lines)
    return text, ("[order]", *lines)


def _stays(now: str, why: tuple[str, ...], orders: Mapping[str, Tested]) -> str:
    entrant = orders[now].entrant
    what = {FCFS: "First come, first served", PLAIN: "The default"}.get(now, "Your setting")
    reason = (
        f"what leads before the switch does not hold after it: {why[0]}"
        if why
        else "no other setting that keeps the promises leads on the part before the switch"
    )
    return (
        f"{what} stays (own = {entrant.own:g}, share = {entrant.share:g})"
        f"{_beside_fcfs(orders[now])}: {reason}."
    )


def _beside_fcfs(one: Tested) -> str:
    if one.changes is None:
        return ""
    return f", {one.changes.wait} against first come, first served"


def advice_json(advice: Advice) -> dict[str, Any]:
    """As plain data for JSON and page."""
    return {
        "sentence": advice.sentence,
        "lines": list(advice.lines),
        "why": list(advice.why),
        "copies": COPIES if advice.orders else 0,
        "orders": {name: _order_json(one) for name, one in advice.orders.items()},
    }


def _order_json(one: Tested) -> dict[str, Any]:
    entrant = one.entrant
    return {
        "policy": entrant.policy.name,
        "own": entrant.own,
        "share": entrant.share,
        "max_delay_s": entrant.max_delay_s,
        "wait_s": one.mean(lambda s: s.mean_s),
        "wait_p99_s": one.mean(lambda s: s.tail_s),
        "wait_max_s": one.mean(lambda s: s.longest_s),
        "bsld": one.mean(lambda s: float(s.bsld.mean())),
        "against_fcfs": None if one.changes is None else difference_json(one.changes),
    }
