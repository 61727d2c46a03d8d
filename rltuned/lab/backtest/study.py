"""The whole backtest, from files to figures; and the figures as plain data for JSON and page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from rltuned import __version__
from rltuned.core.decide import Policy
from rltuned.core.slurm_plan import Parameters
from rltuned.lab.backtest.calibration import Calibration, Match, calibrate
from rltuned.lab.backtest.outcome import OrderOutcome, outcome_of
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.play import play_natural, play_ours, scenario_of
from rltuned.lab.backtest.plugged import play_plugged
from rltuned.lab.backtest.site import backfill_text, line_to_write
from rltuned.lab.compare import change_of_longest, change_of_mean
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.protocol import BY_DEFAULT, Protocol, by_default
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.stats import stretches_of
from rltuned.policies.plugins import Plugin
from rltuned.slurm.accounting import SacctAnswer
from rltuned.text import utc

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
