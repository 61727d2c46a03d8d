"""The whole backtest, from files to figures; and the figures as plain data for JSON and page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from rltuned import __version__
from rltuned.core.decide import Policy
from rltuned.core.slurm_plan import Parameters
from rltuned.domain.units import JobId
from rltuned.lab.backtest.outcome import Calibration, Match, OrderOutcome, calibrate, outcome_of
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.site import backfill_text, line_to_write
from rltuned.lab.compare import change_of_longest, change_of_mean, stretches_of
from rltuned.lab.kernel.state import Shares
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.orders import in_cycles, layers_of
from rltuned.lab.replay.play import Played, run
from rltuned.lab.replay.protocol import BY_DEFAULT, Protocol, by_default
from rltuned.lab.replay.run import Learning
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.report import plots
from rltuned.lab.train.predictor import FEWEST_JOBS, Fitted, fit
from rltuned.policies.baselines import BASELINES
from rltuned.policies.plugins import Plugin
from rltuned.policies.predictor import Predictor
from rltuned.report import render
from rltuned.settings import Settings
from rltuned.sim.dispatch import Pending
from rltuned.sim.world import Rules, World, by_priority
from rltuned.slurm.accounting import SacctAnswer
from rltuned.text import utc

# The history played under Slurm's own order, and with the daemon switched on at a moment.
#
# Both plays are the compiled world's from the beginning of the record on: same jobs, same
# placement, same backfill, the same moments at which Slurm looks at its queue, and up to the switch
# the same order. From there the daemon's decision is made at its own interval, within its bounds,
# with memory of what it wrote; between two cycles Slurm's order stands.


def as_daemon(settings: Settings) -> Protocol:
    """As the daemon runs at stage full; where jobs go is Slurm's business here."""
    knobs = settings.knobs()
    rules = replace(knobs.rules, switchback=None)
    knobs = replace(knobs, rules=rules, top_k=0, placement="pack")
    return Protocol("cycle", settings.daemon.interval_s, knobs)


def scenario_of(past: Past) -> Scenario:
    """A history ready to be played under any number of orders."""
    site = past.site
    rules = Rules(site.backfill, natural=site.natural, parameters=site.parameters)
    return Scenario.of(site.cluster, past.jobs, rules, name=site.cluster.name)


def play_natural(past: Past, scenario: Scenario, interval_s: float) -> Played:
    """Slurm's own order throughout; it looks at its queue at every event and every interval."""
    protocol = Protocol("cycle", interval_s)
    return replace(play_ours(past, scenario, BASELINES["fcfs"], protocol), cycles=[])


def play_ours(past: Past, scenario: Scenario, policy: Policy, protocol: Protocol) -> Played:
    """The policy's order from the split on; cycles for which no scored job waits are left out.

    Raises KeyError: the compiled world does not know the policy.
    """
    if protocol.predictor is not None:
        scenario = replace(scenario, predictor=layers_of(protocol.predictor))
    ranking, cycles, eyes = in_cycles(
        policy,
        scenario,
        protocol.knobs,
        protocol.interval_s,
        first_s=past.split_s,
        compares=True,
    )
    # what waited at the beginning of the record may start, and not before it
    arrive_s = scenario.submit_s.copy()
    waiting = np.array(sorted(past.waiting), dtype=np.int64) - 1
    arrive_s[waiting] = np.maximum(arrive_s[waiting], 0.0)
    played = run(scenario, ranking, cycles=cycles, eyes=eyes, arrive_s=arrive_s)
    last_s = float(played.start_s[past.scored].max())
    return replace(played, cycles=[row for row in played.cycles if row[0] <= last_s])


# A policy of another package on a site's history: the same with objects in place
# of the kernel, which cannot call it. It takes a hundred times as long.


def play_plugged(past: Past, policy: Policy, protocol: Protocol) -> Played:
    """The policy's order from the split on, on nodes that are not known; cycles for which no scored
    job waits are left out. Raises PolicyError: it gives no usable delays.
    """
    rules = Rules(backfill=past.site.backfill, natural=past.site.natural)
    world = World(past.site.cluster, past.jobs, rules=rules, order=_order(past.waiting))
    # what waited at the beginning of the record may start at 0
    decided = DecidedWorld(world, protocol, past.split_s, looks_at_s=0.0)
    predictor, rows = protocol.predictor, []
    learning = None if predictor is None else Learning(world, past.jobs, predictor)
    while (seen := decided.due()) is not None:
        before = _ranks(world)
        decision = decided.decide(
            seen, policy, {} if learning is None else learning.predicted(seen)
        )
        changes, shifts = len(decision.plan.actions), _shifts(before, _ranks(world))
        furthest, mean = (max(shifts), sum(shifts) / len(shifts)) if changes else (0, 0.0)
        rows.append((world.now, len(shifts), changes, mean, furthest))
    ended = [world.finished[number] for number in range(1, len(past.jobs) + 1)]
    start_s = np.array([one.started_at for one in ended])
    last_s, nowhere = float(start_s[past.scored].max()), np.zeros(0, dtype=np.int64)
    return Played(
        start_s=start_s,
        end_s=np.array([one.ended_at for one in ended]),
        offset=np.zeros(len(ended) + 1, dtype=np.int64),
        shares=Shares(nowhere, nowhere, nowhere, nowhere, nowhere),
        decisions=decided.decisions,
        cycles=[row for row in rows if row[0] <= last_s],
        writes=np.array([decided.written.get(JobId(n + 1), 0) for n in range(len(ended))]),
        lost_gpu_s=0.0,
    )


def _order(waited: frozenset[int]) -> Callable[[World], Iterable[Pending]]:
    """Slurm's; waited: jobs that may not start before the record begins."""

    def ordered(world: World) -> Iterable[Pending]:
        jobs = by_priority(world)
        return jobs if world.now >= 0 else (job for job in jobs if job.number not in waited)

    return ordered


def _ranks(world: World) -> dict[int, int]:
    return {job.number: rank for rank, job in enumerate(by_priority(world))}


def _shifts(before: dict[int, int], after: dict[int, int]) -> list[int]:
    return [abs(rank - before[number]) for number, rank in after.items()]


def fit_site(past: Past, begin: Predictor) -> tuple[Fitted | None, str]:
    """The predictor that learns from the jobs that had ended when rltuned is switched on (None =
    nothing was learned), and a sentence for the report.
    """
    jobs, start_s = past.known()
    if len(jobs) < FEWEST_JOBS:
        few = f"{len(jobs)} jobs had ended before the switch, {FEWEST_JOBS} are needed"
        return None, f"nothing was learned: {few}"
    fitted = fit(jobs, start_s=start_s, begin=begin, seed=1)
    return fitted, (
        f"run-time predictor fitted to {fitted.examples} jobs of the earlier part; loss "
        f"{fitted.pinball:.3f} on its last fifth, {fitted.plain:.3f} without looking at the job"
    )


Report = Callable[[str, float], None]
"""Called with what is being worked on, and how much of it is done, 0..1."""
FEW_SHOWN: Final = 5
VERDICTS: Final = {
    "close": "close: simulated waits can be read as they are",
    "rough": "rough: believe the direction and the rough size of a change, not the seconds",
    "poor": "poor: the simulator does not behave as this Slurm did; take no decision from it",
}


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was found. base: played under multifactor; own: by name of the order."""

    past: Past
    base: Played
    calibration: Calibration
    own: Mapping[str, Played]
    policies: Mapping[str, Policy]
    outcomes: Mapping[str, OrderOutcome]


def run_study(
    past: Past,
    policies: Mapping[str, Policy],
    protocol: Protocol,
    *,
    names: bool,
    report: Report = lambda _what, _part: None,
) -> Study:
    """Play everything.

    protocol: the daemon's, with its predictor. names: show users by their names, not by numbers.

    Raises PolicyError: a policy's scores cannot be used.
    """
    report("multifactor", 0.0)
    scenario = scenario_of(past)
    base = play_natural(past, scenario, protocol.interval_s)
    calibration = calibrate(past, base)
    users = [j.user for j in past.jobs]
    shown = users if names else aliases(users, "user")
    own, outcomes = {}, {}
    for name, policy in policies.items():
        report(name, 0.0)
        own[name] = _played(past, scenario, name, policy, protocol)
        outcomes[name] = outcome_of(past, base, own[name], shown)
    return Study(past, base, calibration, own, policies, outcomes)


def other_setting(
    study: Study, change: str, parameters: Parameters, protocol: Protocol
) -> dict[str, Any]:
    """The wait of the later jobs with another parameter of sched/backfill: under Slurm's own order
    and under the first policy, each against the same order with the site's own parameters. change:
    as name=value.
    """
    past, (name, policy) = study.past, next(iter(study.policies.items()))
    other = replace(past, site=replace(past.site, parameters=parameters))
    scenario, arrived = scenario_of(other), past.arrived_s[past.later]
    plays = {
        "multifactor": (study.base, play_natural(other, scenario, protocol.interval_s)),
        name: (study.own[name], _played(other, scenario, name, policy, protocol)),
    }
    stretches, mean, longest = stretches_of(arrived), {}, {}
    for order, pair in plays.items():
        base_s, own_s = (played.start_s[past.later] - arrived for played in pair)
        mean[order] = asdict(change_of_mean(base_s, own_s, stretches))
        longest[order] = asdict(change_of_longest(base_s, own_s))
    line = line_to_write(past.site.scheduler, change)
    return {"change": change, "wait_s": mean, "wait_max_s": longest, "line": line}


def _played(
    past: Past, scenario: Scenario, name: str, policy: Policy, protocol: Protocol
) -> Played:
    if isinstance(policy, Plugin):
        return play_plugged(past, policy, protocol)
    return play_ours(
        past, scenario, policy, by_default(protocol) if name == BY_DEFAULT else protocol
    )


def aliases(names: Sequence[str], kind: str) -> list[str]:
    """Numbers in place of names, in the order in which they first came."""
    known: dict[str, str] = {}
    return [known.setdefault(name, f"{kind} {len(known) + 1}") for name in names]


def document(study: Study, history: SacctAnswer, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Everything for JSON: what is unknown is null.

    asked: how it was asked for: command, train, interval, seed, ...
    """
    past, calibration = study.past, study.calibration
    return {
        "rltuned": __version__,
        "asked": dict(asked),
        "calibration": {
            "verdict": calibration.whole.verdict,
            "means": VERDICTS[calibration.whole.verdict],
            "whole": _match(calibration.whole),
            "later": _match(calibration.later),
            "partitions": {n: _match(m) for n, m in calibration.partitions.items()},
            "unit": calibration.unit,
            "order": _order_text(past),
            "not_played": [*past.site.unplayed, *past.noted],
        },
        "backfill": backfill_text(past.site),
        "record": _record(past, history),
        "real": _real(past),
        "orders": {name: asdict(o) for name, o in study.outcomes.items()},
        "headline": _headline(study),
    }


def _headline(study: Study) -> str:
    """The first order, and how far the simulator is to be trusted, in one sentence."""
    name, outcome = next(iter(study.outcomes.items()))
    off = study.calibration.whole.mean.change
    return (
        f"{name} instead of multifactor: mean wait {outcome.metrics['wait_s']!s}; the "
        f"simulator is off by {'an unknown part' if off is None else f'{off:+.1%}'}"
    )


def _order_text(past: Past) -> str:
    """Which order the simulated Slurm had."""
    natural, other = past.site.natural, past.site.other_weight
    if natural.kind == "fcfs":
        return "priority/basic: first come, first served"
    text = (
        f"multifactor: age {natural.age_weight}, job size {natural.size_weight}, partition "
        f"{natural.partition_weight}"
    )
    if past.use_recorded:
        return (
            f"{text}; what else there was (fair share, QOS, nice ...: {other:.0%} of the weights) "
            "from the priority that slurmdbd recorded of each job, unchanged while it waits"
        )
    if other:
        return (
            f"{text}; {other:.0%} of the weights are of factors that are not played, and the "
            "recorded priorities are missing"
        )
    return text


def _record(past: Past, history: SacctAnswer) -> dict[str, Any]:
    cluster = past.site.cluster
    reasons = history.left_out + past.left_out
    return {
        "cluster": cluster.name,
        "slurm": ".".join(map(str, past.site.slurm.version)),
        "nodes": len(cluster.nodes),
        "gpus": cluster.gpus,
        "nodes_left_out": list(past.absent),
        "site_left_out": list(past.site.left_out),
        "begin": utc(past.begin),
        "switch": utc(past.begin + past.split_s),
        "until": utc(past.until),
        "rows": history.rows,
        "jobs_played": len(past.jobs),
        "jobs_scored": int(past.scored.sum()),
        "jobs_later": int(past.later.sum()),
        "running_at_begin": len(past.running),
        "waiting_at_begin": len(past.waiting),
        "run_times_assumed": past.assumed,
        "left_out": dict(reasons.most_common()),
        "left_out_lines": {k: v[:FEW_SHOWN] for k, v in history.lines.items() if k in reasons},
        "columns_missing": list(history.missing),
        "times_without_zone": history.zoneless,
    }


def _real(past: Past) -> dict[str, Any]:
    """What users really waited: start - eligible, and start - submit."""
    found = {}
    for name, mask in (("whole", past.scored), ("later", past.later)):
        waits, pended = past.wait_s[mask], past.pended_s[mask]
        found[name] = {
            "jobs": int(mask.sum()),
            "wait_s": float(waits.mean()),
            "wait_p50_s": float(np.median(waits)),
            "wait_p95_s": float(np.quantile(waits, 0.95)),
            "wait_max_s": float(waits.max()),
            "since_submit_s": float(pended.mean()),
        }
    return found


def _match(match: Match) -> dict[str, Any]:
    return {**asdict(match), "verdict": match.verdict}


def account_names(past: Past) -> dict[str, str]:
    """Account -> its number."""
    names = [j.account or "(none)" for j in past.jobs]
    return dict(zip(names, aliases(names, "account"), strict=True))


def anonymous(document: dict[str, Any], past: Past) -> dict[str, Any]:
    """The same without names of accounts."""
    known = account_names(past)
    for order in document["orders"].values():
        groups = order["groups"]
        groups["account"] = {known[n]: g for n, g in groups["account"].items()}
    return document


# The report of a backtest: one HTML page that needs nothing else.


SHOWN: Final = {
    "wait_s": "mean wait",
    "wait_p50_s": "median wait",
    "wait_p95_s": "95% wait less",
    "jct_s": "mean completion",
    "bsld": "bounded slowdown",
}


def page_of(study: Study, found: Mapping[str, Any], accounts: Mapping[str, str]) -> str:
    """The page.

    found: see document; the page has nothing else. accounts: account -> its name on the page.
    """
    calibration, past, outcomes = found["calibration"], study.past, study.outcomes
    matches = {"all": calibration["whole"], "after the switch": calibration["later"]}
    matches |= {f"partition {name}": match for name, match in calibration["partitions"].items()}
    simulated = (study.base.start_s - past.arrived_s)[past.scored]
    metrics = [
        (title, {name: o.metrics[metric] for name, o in outcomes.items()})
        for metric, title in SHOWN.items()
    ]
    return render(
        "backtest.html",
        title=f"Backtest of {found['record']['cluster']}",
        headline=found["headline"],
        tone=calibration["verdict"],
        study=found,
        matches=list(matches.items()),
        plots={
            "calibration": plots.calibration(
                study.calibration.days, past.split_s, (past.wait_s[past.scored], simulated)
            ),
            "orders": plots.forests("orders", metrics, same=True),
            "moves": plots.moves({name: o.moved.hours for name, o in outcomes.items()}),
            "people": {name: _people_plot(study, name) for name in outcomes},
            "groups": {name: _groups_plot(o, accounts) for name, o in outcomes.items()},
        },
        terms=[(k.replace("_", " "), v) for k, v in found["asked"].items() if k != "learned"],
    )


def _people_plot(study: Study, name: str) -> Markup:
    gap = (study.own[name].start_s - study.base.start_s)[study.past.later]
    users = np.array(study.outcomes[name].people)
    few = "share of the users with five jobs and more"
    return plots.gaps(f"people {name}", {"share of the jobs": gap, few: users})


def _groups_plot(outcome: OrderOutcome, accounts: Mapping[str, str]) -> Markup:
    """Change of the mean wait by group; a kind with one group says nothing."""
    kinds = {kind: groups for kind, groups in outcome.groups.items() if len(groups) > 1}
    panels = [
        (
            f"mean wait, by {kind}",
            {f"{accounts.get(n, n) if kind == 'account' else n} ({g.jobs})": g.wait
             for n, g in groups.items()},
        )
        for kind, groups in (kinds or dict([*outcome.groups.items()][:1])).items()
    ]  # fmt: skip
    return plots.forests("groups", panels)
