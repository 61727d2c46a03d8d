"""A history played under Slurm's own order and under others, and what differs: by how much, for
whom, and how much was moved. As plain data for JSON, and as a page.

Every play is the compiled world's from the beginning of the record on: same jobs, same placement,
same backfill, the same moments at which Slurm looks at its queue, and up to the switch the same
order. From there the daemon's decision is made at its own interval, within its bounds, with memory
of what it wrote; between two cycles Slurm's order stands.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rltuned import __version__
from rltuned.core.decide import Policy
from rltuned.core.slurm_plan import Parameters
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.sacct_files import Report
from rltuned.lab.backtest.site import backfill_text, line_to_write
from rltuned.lab.compare import (
    change_of_longest,
    change_of_mean,
    change_of_quantile,
    stretches_of,
)
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.orders import in_cycles, layers_of
from rltuned.lab.replay.play import Played, played_by, run
from rltuned.lab.replay.protocol import BY_DEFAULT, Protocol, by_default
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.predictor import FEWEST_JOBS, fit
from rltuned.policies.baselines import BASELINES
from rltuned.policies.plugins import Plugin
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.report import charts, render
from rltuned.settings import Settings
from rltuned.sim.limits import spearman
from rltuned.sim.world import Pending, Rules, World, by_priority
from rltuned.slurm.accounting import SacctAnswer
from rltuned.text import span, utc

VERDICTS: Final = {
    "close": "close: simulated waits can be read as they are",
    "rough": "rough: believe the direction and the rough size of a change, not the seconds",
    "poor": "poor: the simulator does not behave as this Slurm did; take no decision from it",
}
NEAR_S, NEAR = 60.0, 0.25
"""A wait is met when it is off by no more than this, or by no more than NEAR of it."""
BOUNDS: Final = (("close", 0.20, 0.7), ("rough", 0.50, 0.4))
"""Of the verdict: the largest error of the mean, and the smallest rank correlation."""
FEW: Final = 5
"""Jobs of a user, to be counted among those better or worse off, and rows of one reason shown."""
TOLERANCE_S: Final = 60.0
"""A job is better or worse off when its wait differs by more than this; one cycle."""
WORST, LARGEST_GROUPS, HALF, HOUR_S = 10, 12, 0.5, 3_600.0


# -- Plays ----------------------------------------------------------------------------------------


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
    came_s = scenario.submit_s
    arrive_s = np.where(past.held, np.maximum(came_s, 0.0), came_s)
    return _judged(past, run(scenario, ranking, cycles=cycles, eyes=eyes, arrive_s=arrive_s))


def _judged(past: Past, played: Played) -> Played:
    last_s = float(played.start_s[past.scored].max())
    return replace(played, cycles=[row for row in played.cycles if row[0] <= last_s])


def play_plugged(past: Past, policy: Policy, protocol: Protocol) -> Played:
    """The same for a policy of another package: with objects in place of the kernel, which cannot
    call it, a hundred times as long. Raises PolicyError: it gives no usable delays.
    """

    def order(world: World) -> Iterable[Pending]:
        jobs = by_priority(world)
        return jobs if world.now >= 0 else (job for job in jobs if not past.held[job.number - 1])

    def ranks() -> dict[int, int]:
        return {job.number: rank for rank, job in enumerate(by_priority(world))}

    rules = Rules(backfill=past.site.backfill, natural=past.site.natural)
    world = World(past.site.cluster, past.jobs, rules=rules, order=order)
    # what waited at the beginning of the record may start at 0
    decided, rows = DecidedWorld(world, protocol, past.split_s, looks_at_s=0.0, learns=True), []
    while (seen := decided.due()) is not None:
        before = ranks()
        changes = len(decided.decide(seen, policy).plan.actions)
        shifts = [abs(rank - before[number]) for number, rank in ranks().items()]
        furthest, mean = (max(shifts), sum(shifts) / len(shifts)) if changes else (0, 0.0)
        rows.append((world.now, len(shifts), changes, mean, furthest))
    return _judged(past, played_by(world, decided.decisions, decided.written, rows))


def protocol_of(
    past: Past, settings: Settings, report: Report, *, fits: bool = True
) -> tuple[Protocol, str]:
    """The daemon's, with the predictor that it would have had at the switch, and a sentence on it:
    the shipped one, or (fits) one that learns from the jobs that had ended then.
    """
    begin = load_predictor(shipped_predictor())
    protocol = replace(as_daemon(settings), predictor=begin)
    if not fits:
        return protocol, "nothing was learned from the earlier part (--train none)"
    report("learning", 0.0)
    jobs, start_s = past.known()
    if len(jobs) < FEWEST_JOBS:
        few = f"{len(jobs)} jobs had ended before the switch, {FEWEST_JOBS} are needed"
        return protocol, f"nothing was learned: {few}"
    fitted = fit(jobs, start_s=start_s, begin=begin, seed=1)
    return replace(protocol, predictor=fitted.predictor), (
        f"run-time predictor fitted to {fitted.examples} jobs of the earlier part; loss "
        f"{fitted.pinball:.3f} on its last fifth, {fitted.plain:.3f} without looking at the job"
    )


# -- What is found: how far the simulator is off, then each order against simulated multifactor ---


def calibrate(past: Past, played: Played) -> dict[str, Any]:
    """Compare what Slurm did with what the simulator does under the same weights: `verdict` and
    what it means, matches of the scored jobs, of those after the split and by partition, `unit` of
    chance, and days: (day, real mean, simulated mean, jobs).
    """
    arrived, simulated = past.arrived_s, played.start_s - past.arrived_s
    names = np.array([j.partition for j in past.jobs])

    def match(mask: NDArray[np.bool_]) -> dict[str, Any]:
        real, ours = past.wait_s[mask], simulated[mask]
        off, mean = np.abs(ours - real), change_of_mean(real, ours, stretches_of(arrived[mask]))
        rank = spearman(real, ours) if len(real) >= FEW else float("nan")
        exact, error = off.mean() < 1.0, 9.0 if mean.change is None else abs(mean.change)
        verdict = next((v for v, e, r in BOUNDS if exact or (error <= e and rank >= r)), "poor")
        return {
            "jobs": len(real),
            "mean": mean,
            "median_s": (float(np.median(real)), float(np.median(ours))),
            "p95_s": (float(np.quantile(real, 0.95)), float(np.quantile(ours, 0.95))),
            "rank": None if np.isnan(rank) else rank,
            "met": float((off <= np.maximum(NEAR_S, NEAR * real)).mean()),
            "off_s": float(off.mean()),
            "verdict": verdict,
        }

    whole, scored = match(past.scored), past.scored
    stretches, days = stretches_of(arrived[scored]), []
    for number in range(stretches.count):
        of = stretches.of == number
        came, real, ours = (v[scored][of] for v in (arrived, past.wait_s, simulated))
        days.append((float(came.min()), float(real.mean()), float(ours.mean()), len(came)))
    return {
        "verdict": whole["verdict"],
        "means": VERDICTS[whole["verdict"]],
        "whole": whole,
        "later": match(past.later),
        "partitions": {
            str(name): match(scored & (names == name)) for name in np.unique(names[scored])
        },
        "unit": stretches.words,
        "days": days,
    }


def outcome_of(past: Past, base: Played, own: Played, users: Sequence[str]) -> dict[str, Any]:
    """Compare two plays on the jobs that came after the split. users: of every job, as they are
    shown.

    better, worse: shares of the jobs; users_*: numbers of users with enough jobs. worst: those who
    lose most. groups: kind -> group -> its
    jobs, mean real wait, changes.
    """
    mask = past.later
    arrived, names = past.arrived_s[mask], np.array(users, dtype=object)[mask].astype(str)
    stretches = stretches_of(arrived)
    waits = base.start_s[mask] - arrived, own.start_s[mask] - arrived
    duration_s = np.array([j.duration_s for j in past.jobs])[mask]
    slow = slowdown(waits[0], duration_s), slowdown(waits[1], duration_s)
    difference, worst = waits[1] - waits[0], list[dict[str, Any]]()
    for name in np.unique(names):
        mine = names == name
        if mine.sum() >= FEW:
            theirs, ours = (w[mine] for w in waits)
            person = {"name": str(name), "jobs": len(ours), "longest_s": float(ours.max())}
            worst.append(person | {"base_s": float(theirs.mean()), "own_s": float(ours.mean())})
    worst.sort(key=lambda p: float(p["base_s"] - p["own_s"]))
    gaps = [p["own_s"] - p["base_s"] for p in worst]
    groups: dict[str, dict[str, Any]] = {}
    for kind, every in _labels(past).items():
        labels = every[mask].astype(str)
        found, counts = np.unique(labels, return_counts=True)
        largest = [str(found[i]) for i in np.argsort(-counts, kind="stable")[:LARGEST_GROUPS]]
        if kind == "GPUs":
            largest.sort(key=lambda name: int(name.partition("-")[0]))
        for name in largest:
            some = labels == name
            part = stretches.part(some)
            groups.setdefault(kind, {})[name] = {
                "jobs": int(some.sum()),
                "real_s": float(past.wait_s[mask][some].mean()),
                "wait": change_of_mean(waits[0][some], waits[1][some], part),
                "bsld": change_of_mean(slow[0][some], slow[1][some], part),
            }
    return {
        "metrics": {
            "wait_s": change_of_mean(*waits, stretches),
            "wait_p50_s": change_of_quantile(*waits, 0.5, stretches),
            "wait_p95_s": change_of_quantile(*waits, 0.95, stretches),
            "wait_max_s": change_of_longest(*waits),
            "jct_s": change_of_mean(
                base.end_s[mask] - arrived, own.end_s[mask] - arrived, stretches
            ),
            "bsld": change_of_mean(*slow, stretches),
        },
        "groups": groups,
        "better": float((difference < -TOLERANCE_S).mean()),
        "worse": float((difference > TOLERANCE_S).mean()),
        "users_better": sum(g < -TOLERANCE_S for g in gaps),
        "users_worse": sum(g > TOLERANCE_S for g in gaps),
        "users": len(gaps),
        "worst": worst[:WORST],
        "moved": _moved(past, own),
        "unit": stretches.words,
    }


def _labels(past: Past) -> dict[str, NDArray[np.object_]]:
    """Kind of group -> the group of every job. Users by the GPU time of what had ended by the
    split: those who held half of it, and others; who had no job until then is new.
    """
    held: dict[str, float] = {}
    for job in past.known()[0]:
        held[job.user] = held.get(job.user, 0.0) + job.duration_s * max(1, job.gpus)
    heavy, so_far, half = set[str](), 0.0, HALF * sum(held.values())
    for user in sorted(held, key=lambda u: -held[u]):
        if so_far >= half:
            break
        heavy.add(user)
        so_far += held[user]
    kinds = dict.fromkeys(held, "others") | dict.fromkeys(heavy, "held half of the GPU time")
    found = {
        "partition": [j.partition for j in past.jobs],
        "GPUs": [size_class(j.gpus) for j in past.jobs],
        "account": [j.account or "(none)" for j in past.jobs],
        "users": [kinds.get(j.user, "new") for j in past.jobs],
    }
    return {kind: np.array(labels, dtype=object) for kind, labels in found.items()}


def size_class(gpus: int) -> str:
    """`0`, `1`, `2-3`, `4-7`, `8-15` ..."""
    low = 1 << (gpus.bit_length() - 1) if gpus > 1 else gpus
    return str(gpus) if gpus <= 1 else f"{low}-{2 * low - 1}"


def _moved(past: Past, own: Played) -> dict[str, Any]:
    """Changes per hour of the later part: mean and largest of an hour; share of the jobs whose
    priority was ever changed; mean and largest shift of ranks in cycles that changed something.
    """
    at_s, _, changes, shift, furthest = np.array(own.cycles, dtype=np.float64).reshape(-1, 5).T
    last_s = max([float(past.arrived_s[past.later].max()), *at_s[-1:]])
    span_s = max(HOUR_S, last_s - past.split_s)
    hours = np.zeros(max(1, int(np.ceil(span_s / HOUR_S))))
    hour = np.clip((at_s - past.split_s) // HOUR_S, 0, len(hours) - 1).astype(int)
    np.add.at(hours, hour, changes)
    busy = changes > 0
    return {
        "cycles": len(at_s),
        "changes": int(changes.sum()),
        "per_hour": float(changes.sum()) / (span_s / HOUR_S),
        "hour_max": float(hours.max()),
        "touched": float((own.writes[past.later] > 0).mean()),
        "shift": float(shift[busy].mean()) if busy.any() else 0.0,
        "furthest": int(furthest[busy].max(initial=0)),
    }


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was found. base: played under multifactor; own: by name of the order.
    calibration, outcomes: see calibrate and outcome_of.
    """

    past: Past
    base: Played
    calibration: dict[str, Any]
    own: Mapping[str, Played]
    policies: Mapping[str, Policy]
    protocol: Protocol
    outcomes: Mapping[str, dict[str, Any]]


def run_study(
    past: Past,
    policies: Mapping[str, Policy],
    protocol: Protocol,
    *,
    names: bool,
    report: Report = lambda _what, _part: None,
) -> Study:
    """Play everything. protocol: the daemon's, with its predictor. names: show users by their
    names, not by numbers. Raises PolicyError: a policy's scores cannot be used.
    """
    report("multifactor", 0.0)
    scenario = scenario_of(past)
    base = play_natural(past, scenario, protocol.interval_s)
    users, own = [j.user for j in past.jobs], dict[str, Played]()
    for name, policy in policies.items():
        report(name, 0.0)
        own[name] = _played(past, scenario, name, policy, protocol)
    shown = users if names else numbered(users, "user")
    outcomes = {name: outcome_of(past, base, played, shown) for name, played in own.items()}
    return Study(past, base, calibrate(past, base), own, policies, protocol, outcomes)


def _played(
    past: Past, scenario: Scenario, name: str, policy: Policy, protocol: Protocol
) -> Played:
    if isinstance(policy, Plugin):
        return play_plugged(past, policy, protocol)
    protocol = by_default(protocol) if name == BY_DEFAULT else protocol
    return play_ours(past, scenario, policy, protocol)


def other_setting(study: Study, change: str, parameters: Parameters) -> dict[str, Any]:
    """The wait of the later jobs with another parameter of sched/backfill: under Slurm's own order
    and under the first policy, each against the same order with the site's own parameters. change:
    as name=value.
    """
    past, (name, policy) = study.past, next(iter(study.policies.items()))
    other = replace(past, site=replace(past.site, parameters=parameters))
    scenario, arrived = scenario_of(other), past.arrived_s[past.later]
    protocol = study.protocol
    pairs = {
        "multifactor": (study.base, play_natural(other, scenario, protocol.interval_s)),
        name: (study.own[name], _played(other, scenario, name, policy, protocol)),
    }
    waits = {
        order: (base.start_s[past.later] - arrived, own.start_s[past.later] - arrived)
        for order, (base, own) in pairs.items()
    }
    stretches = stretches_of(arrived)
    return {
        "change": change,
        "wait_s": {k: change_of_mean(*pair, stretches) for k, pair in waits.items()},
        "wait_max_s": {k: change_of_longest(*pair) for k, pair in waits.items()},
        "line": line_to_write(past.site.scheduler, change),
    }


def numbered(names: Sequence[str], kind: str) -> list[str]:
    """Numbers in place of names, in the order in which they first came."""
    known: dict[str, str] = {}
    return [known.setdefault(name, f"{kind} {len(known) + 1}") for name in names]


# -- The same for JSON and for people -------------------------------------------------------------


def document(
    study: Study, history: SacctAnswer, asked: Mapping[str, Any], *, names: bool
) -> dict[str, Any]:
    """Everything for JSON, a Change as it is; what is unknown is None. asked: how it was asked for:
    command, train, interval, seed, ... names: of accounts.
    """
    past, site, orders = study.past, study.past.site, study.outcomes
    real, left_out = {}, dict(past.left_out.most_common())
    for part, mask in (("whole", past.scored), ("later", past.later)):
        waits = past.wait_s[mask]
        real[part] = {
            "jobs": int(mask.sum()),
            "wait_s": float(waits.mean()),
            "wait_p50_s": float(np.median(waits)),
            "wait_p95_s": float(np.quantile(waits, 0.95)),
            "wait_max_s": float(waits.max()),
            "since_submit_s": float(past.pended_s[mask].mean()),
        }
    if not names:
        accounts = [j.account or "(none)" for j in past.jobs]
        shown = dict(zip(accounts, numbered(accounts, "account"), strict=True))
        for order in orders.values():
            order["groups"]["account"] = {
                shown[name]: group for name, group in order["groups"]["account"].items()
            }
    name, first = next(iter(orders.items()))
    off = study.calibration["whole"]["mean"].change
    return {
        "rltuned": __version__,
        "asked": dict(asked),
        "calibration": {
            **study.calibration,
            "order": _order_text(past),
            "not_played": [*site.unplayed, *past.noted],
        },
        "backfill": backfill_text(site),
        "record": {
            "cluster": site.cluster.name,
            "slurm": ".".join(map(str, site.slurm.version)),
            "nodes": len(site.cluster.nodes),
            "gpus": site.cluster.gpus,
            "nodes_left_out": list(past.absent),
            "site_left_out": list(site.left_out),
            "begin": utc(past.begin),
            "switch": utc(past.begin + past.split_s),
            "until": utc(past.until),
            "rows": history.rows,
            "jobs_played": len(past.jobs),
            "jobs_scored": int(past.scored.sum()),
            "jobs_later": int(past.later.sum()),
            "running_at_begin": int(past.ran.sum()),
            "waiting_at_begin": int(past.held.sum()),
            "run_times_assumed": past.assumed,
            "left_out": left_out,
            "left_out_lines": {k: v[:FEW] for k, v in history.lines.items() if k in left_out},
            "columns_missing": list(history.missing),
            "times_without_zone": history.zoneless,
        },
        "real": real,
        "orders": orders,
        "headline": (
            f"{name} instead of multifactor: mean wait {first['metrics']['wait_s']!s}; the "
            f"simulator is off by {'an unknown part' if off is None else f'{off:+.1%}'}"
        ),
    }


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
    lacking = "of factors that are not played, and the recorded priorities are missing"
    return f"{text}; {other:.0%} of the weights are {lacking}" if other else text


def page_of(study: Study, found: Mapping[str, Any]) -> str:
    """One HTML page that needs nothing else. found: see document."""
    calibration, past = found["calibration"], study.past
    matches = {"all": calibration["whole"], "after the switch": calibration["later"]}
    matches |= {f"partition {name}": match for name, match in calibration["partitions"].items()}
    begin, end = past.begin, past.until
    days = charts.over_time(
        "Mean wait",
        begin,
        end,
        [
            charts.Drawn(name, kind, [(begin + day[0], day[at]) for day in calibration["days"]])
            for name, kind, at in (("real", "wanted", 1), ("simulated, same weights", "used", 2))
        ],
        shaded=("judged by", [(begin + past.split_s, end)]),
        say=span,
    )
    return render(
        "backtest.html",
        title=f"Backtest of {found['record']['cluster']}",
        headline=found["headline"],
        tone=calibration["verdict"],
        study=found,
        matches=list(matches.items()),
        days=days,
        terms=[(k.replace("_", " "), v) for k, v in found["asked"].items() if k != "learned"],
    )
