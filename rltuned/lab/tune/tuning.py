"""One night: calibrate, split by time, choose on the training period, test once, judge."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rltuned.core.decide import Policy
from rltuned.errors import ModelError, TooLittleError, TraceError
from rltuned.lab.backtest.calibration import calibrate
from rltuned.lab.backtest.fit_order import fit_order
from rltuned.lab.backtest.past import Past
from rltuned.lab.compare import Comparison, JobScores, compared, pooled
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.predictor import Fitted, fit
from rltuned.lab.tune.candidates import (
    Choice,
    Course,
    Entrant,
    Family,
    TrainingPeriod,
    pick,
)
from rltuned.lab.tune.conclusion import poor_calibration
from rltuned.lab.tune.night import FamilyResult, Figures, Night, NightPlan, split_of
from rltuned.lab.tune.promise import power_of, verdict
from rltuned.lab.tune.warm_start import imitated
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import Predictor

MINUTE_S: Final = 60.0
PPO_PART: Final = 0.6
"""Of the time that is left when the rules are through."""
COPIES, FEWEST_COPIES = 5, 3
"""Of the test period of the one that may pass, with the record itself; see compare.pooled."""
PPO_LEAST_MIN: Final = 2.0
TRAINED, IMITATED = "trained", "imitated"
IMITATION: Final = "imitation of the site's own Slurm"


@dataclass(slots=True)
class _Tests:
    """What was replayed on the test period. base: the incumbent's scores, copies: the same on
    copies of the test period by number; scores: of others, by family.
    """

    base: JobScores
    copies: dict[int, JobScores] = field(default_factory=dict)
    scores: dict[str, JobScores] = field(default_factory=dict)
    tested: list[FamilyResult] = field(default_factory=list)


Report = Callable[[str, float], None]
"""Called with what is being done, and how much of the time is used, 0..1."""


class _TrainingOverError(Exception):
    """The training period has used its part of the night."""


class NightRun:
    """A night as it goes."""

    def __init__(
        self,
        past: Past,
        incumbent: Entrant,
        daemon: Protocol,
        asked: NightPlan,
        *,
        clock: Callable[[], float],
        report: Report = lambda _what, _part: None,
    ) -> None:
        self._past, self._incumbent, self._daemon, self._asked = past, incumbent, daemon, asked
        self._clock, self._report = clock, report
        self._began = clock()
        self._left_out: dict[str, str] = {}
        self._usable: list[Path] = []  # networks that load
        self._learned: list[str] = []  # of imitation and PPO, in words
        self._plays = 0
        self._reserved = 0.0

    def spend(self) -> Night:
        """Everything. Raises TooLittleError: the record allows no verdict."""
        asked, past = self._asked, self._past
        switch_s, end_s, test_s = split_of(past, asked.test_days)
        began_s = self._clock()
        test = Course(past.switched_on(test_s), self._daemon)
        # the test period of those that may pass, and the incumbent, must fit in what the training
        # period leaves
        plays = 2 * FEWEST_COPIES + 1 + FEWEST_COPIES * (asked.default is not None)
        self._reserved = plays * (self._clock() - began_s) / (asked.minutes * MINUTE_S)
        calibration = calibrate(test.past, test.played)
        if calibration.whole.verdict == "poor":
            raise TooLittleError(poor_calibration(calibration))
        began = past.switched_on(switch_s)
        early, late = self._fitted(began), self._fitted(past.switched_on(end_s))
        training = TrainingPeriod(
            began, end_s, self._incumbent, asked.promise, self._daemon, on_play=self._note_training
        )
        families = self._families(early)
        choices = self._default(training)
        choices += [c for f in families if (c := self._chosen(training, f))]
        choices += [c for f in self._trained(began, early) if (c := self._chosen(training, f))]
        best, power = pick(choices, self._incumbent), None
        if best is not None:
            rate = len(test.jobs) / max(asked.test_days, 1e-9)
            with suppress(_TrainingOverError):
                again = training.again(best, FEWEST_COPIES)
                power = power_of(again, round(asked.test_days), rate)
            self._report(f"power: {power.words}" if power else "power: not known", self._used())
        later = [_with(c, late, early) for c in choices]
        best = next((new for old, new in zip(choices, later, strict=True) if old is best), None)
        tests = self._test(test, later, best)
        passed = (e for e in tests.tested if not e.why)
        picked = next(passed, None) or next((e for e in tests.tested if e.choice is best), None)
        why = ("no candidate keeps the promise and leads on the training period",)
        return Night(
            past=test.past,
            calibration=calibration,
            periods_s=(switch_s, end_s, test_s),
            natural=test.played,
            natural_figures=_figures(test.natural),
            incumbent=self._incumbent,
            incumbent_figures=_figures(tests.base),
            tested=tuple(tests.tested),
            picked=picked,
            taken=picked.choice.entrant if picked and not picked.why else None,
            why=why if picked is None else picked.why,
            power=power,
            plain=(*self._learned, *_plain(tests, test)),
            fitted=late,
            left_out=dict(self._left_out),
            plays=self._plays,
        )

    # -- steps ------------------------------------------------------------------------------------

    def _fitted(self, past: Past) -> Fitted | None:
        """The predictor of what had ended by the split; None = there is too little, or none."""
        if not self._asked.learn:
            return None
        jobs, start_s = past.known()
        self._report("fitting the predictor", self._used())
        try:
            return fit(jobs, start_s=start_s, begin=self._asked.shipped, seed=self._asked.seed)
        except TraceError as error:
            self._left_out["the site's predictor"] = str(error)
            return None

    def _default(self, training: TrainingPeriod) -> list[Choice]:
        """The order without a generation, as a candidate; nothing where it is in force."""
        default = self._asked.default
        if default is None:
            return []
        try:
            return [training.alone(default)]
        except _TrainingOverError:
            self._left_out[default.family.name] = "no time was left"
            return []

    def _families(self, early: Fitted | None) -> list[Family]:
        asked, rules = self._asked, BASELINES
        shipped = asked.shipped if asked.learn else None
        alone = rules["qssf"] if asked.learn else rules["saf"]
        found = [Family("delay", (rules["delay"], alone), shipped)]
        if early is not None:
            site = early.predictor
            found.append(
                Family("delay with the site's predictor", (rules["delay"], rules["qssf"]), site,
                       site_predictor=True)
            )  # fmt: skip
            for bundle in asked.networks:
                try:
                    actor = load_actor(bundle)
                except ModelError as error:
                    self._left_out[f"the network {bundle.name}"] = str(error)
                    continue
                self._usable.append(bundle)
                name = f"{actor.name} with the site's predictor"
                found.append(Family(name, (actor,), site, site_predictor=True, bundle=bundle))
        return [replace(f, predictor=self._same(f.predictor)) for f in found]

    def _same(self, predictor: Predictor | None) -> Predictor | None:
        """The incumbent's own object where it is the same predictor."""
        own = self._incumbent.family.predictor
        if predictor is not None and own is not None and own.digest:
            return own if own.digest == predictor.digest else predictor
        return predictor

    def _trained(self, past: Past, early: Fitted | None) -> list[Family]:
        """The first network, trained on by PPO for as long as there is time."""
        asked, name = self._asked, "the network trained on by PPO"
        if early is None or not self._usable:
            return []
        start = self._begun_from(past, early.predictor)
        left_min = asked.minutes * (1 - self._used() - self._reserved) * PPO_PART
        if left_min < PPO_LEAST_MIN:
            self._left_out[name] = f"{max(left_min, 0.0):.1f} minutes were left for it"
            return []
        out = asked.work / TRAINED
        self._report("PPO", self._used())
        try:
            bundle, words = fit_order(
                past, start, early.predictor, out,
                minutes=left_min, seed=asked.seed, ranks=asked.ranks,
                report=lambda _part: self._report("PPO", self._used()),
            )  # fmt: skip
        except (ModelError, TraceError) as error:
            bundle, words = None, str(error)
        if bundle is None:
            self._left_out[name] = words
            return []
        self._learned.append(f"PPO: {words}.")
        policy: tuple[Policy, ...] = (load_actor(bundle),)
        return [Family(name, policy, early.predictor, site_predictor=True, bundle=bundle)]

    def _begun_from(self, past: Past, predictor: Predictor) -> Path:
        """The bundle that PPO begins from: the first network, or its imitation of the site."""
        asked, network = self._asked, self._usable[0]
        if not asked.imitate:
            return network
        self._report(IMITATION, self._used())
        out = asked.work / IMITATED
        try:
            words = imitated(past, network, predictor, out, seed=asked.seed)
        except (FloatingPointError, ModelError, TraceError) as error:
            self._left_out[IMITATION] = str(error)
            return network
        self._learned.append(
            f"PPO began from {network.name} after it had learned from Slurm: {words}."
        )
        return out

    def _copies(self, test: Course, tests: _Tests, entrant: Entrant) -> list[Comparison]:
        """Further copies of the test period of incumbent and entrant, as many as there is time
        for.
        """
        found: list[Comparison] = []
        for copy in range(1, COPIES):
            if copy >= FEWEST_COPIES and self._used() > 1:
                break
            if copy not in tests.copies:
                self._note(f"test period, copy {copy}: {self._incumbent.name}")
                tests.copies[copy] = test.play(self._incumbent, copy)
            self._note(f"test period, copy {copy}: {entrant.name}")
            own = test.play(entrant, copy)
            found.append(compared(tests.copies[copy], own, test.jobs.days))
        return found

    def _test(self, test: Course, choices: Sequence[Choice], best: Choice | None) -> _Tests:
        """The test period: the incumbent and the one that was picked, then the others.

        Where the one that was picked does not pass, the default order may, and no other.
        """
        self._note(f"test period: {self._incumbent.name}")
        tests = _Tests(test.play(self._incumbent))
        default, passed = self._asked.default, False
        turns = {id(best): 0} | {id(c): 1 for c in choices if c.entrant is default}
        for choice in sorted(choices, key=lambda c: turns.get(id(c), 2)):
            may_pass = not passed and id(choice) in turns
            if choice.broken or (not may_pass and self._used() > 1):
                tests.tested.append(
                    FamilyResult(choice, why=choice.broken or ("no time was left",))
                )
                continue
            tests.tested.append(self._tested(test, tests, choice, may_pass=may_pass))
            passed = passed or not tests.tested[-1].why
        return tests

    def _tested(
        self, test: Course, tests: _Tests, choice: Choice, *, may_pass: bool
    ) -> FamilyResult:
        """One candidate's test period; with copies where it may pass."""
        entrant = choice.entrant
        same = entrant.same_as(self._incumbent)
        if not same:
            self._note(f"test period: {entrant.name}")
        own = tests.scores[entrant.family.name] = tests.base if same else test.play(entrant)
        found = compared(tests.base, own, test.jobs.days)
        if may_pass:
            found = pooled([found, *self._copies(test, tests, entrant)])
        broken = self._asked.promise.broken(test.jobs, test.natural, tests.base, own)
        policy = entrant.policy
        known = not isinstance(policy, Actor) or len(policy.ranges) > 0
        why = tuple(verdict(found, broken, ranges_known=known, same=same))
        if not may_pass:
            why = ("it was not the best on the training period", *why)
        return FamilyResult(choice, found, _figures(own), why)

    # -- time -------------------------------------------------------------------------------------

    def _used(self) -> float:
        return (self._clock() - self._began) / (self._asked.minutes * MINUTE_S)

    def _note(self, name: str) -> None:
        self._plays += 1
        self._report(name, min(1.0, self._used()))

    def _note_training(self, name: str) -> None:
        """Raises _TrainingOverError: what is left is for the test period."""
        if self._used() + self._reserved >= 1:
            raise _TrainingOverError
        self._note(name)

    def _chosen(self, training: TrainingPeriod, family: Family) -> Choice | None:
        """The family's best; None = there is no time for all of its orders."""
        try:
            return training.choose(family)
        except _TrainingOverError:
            self._left_out[family.name] = "no time was left"
            return None


def _with(choice: Choice, late: Fitted | None, early: Fitted | None) -> Choice:
    """The same with the predictor that is fitted to the whole training period."""
    family = choice.entrant.family
    if late is None or early is None or not family.site_predictor:
        return choice
    own = replace(family, predictor=late.predictor)
    return replace(choice, entrant=replace(choice.entrant, family=own))


def _figures(scores: JobScores) -> Figures:
    return scores.mean_s, scores.tail_s, scores.longest_s


def _plain(tests: _Tests, test: Course) -> list[str]:
    """Whether a rule is as good as a network."""
    there = [e for e in tests.tested if e.test is not None]
    rules = [e for e in there if e.choice.entrant.family.is_rule]
    networks = [e for e in there if not e.choice.entrant.family.is_rule]
    if not rules or not networks:
        return []
    rule, network = (
        max(some, key=lambda e: e.test.gain if e.test else -math.inf).choice.entrant
        for some in (rules, networks)
    )
    one, other = tests.scores[rule.family.name], tests.scores[network.family.name]
    found = compared(one, other, test.jobs.days)
    if found.is_better:
        return [
            f"The network {network.name} is better than the rule {rule.name}: {found.objective}."
        ]
    return [f"The rule {rule.name} is as good as the network {network.name}: {found.objective}."]
