"""`rltuned backtest`: would it have been worth it, on this site's own history?"""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.decide import Policy
from rltuned.core.order import DEFAULT as PLAIN
from rltuned.core.slurm_plan import Parameters
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.wiring import in_force
from rltuned.errors import TooLittleError, TraceError
from rltuned.lab.backtest.past import Past, read_record
from rltuned.lab.backtest.sacct_files import check_new
from rltuned.lab.cli import options
from rltuned.lab.replay.protocol import BY_DEFAULT, DEFAULT
from rltuned.policies.generations import TUNED
from rltuned.policies.plugins import Plugin, policy_named
from rltuned.settings import Loaded, Settings
from rltuned.sim.world import BackfillRule
from rltuned.stats import percent

app = typer.Typer()
SHIPPED: Final = ("model:rltune", "model:rltune-paper", "saf")
LIVE_SINCE, LEFT_OUT_SHOWN = "30d", 8


@app.command()
def backtest(
    *,
    config: ConfigOption = None,
    site: Annotated[
        Path | None,
        typer.Option(help="Folder with the saved files; without it the live Slurm is asked."),
    ] = None,
    collect_to: Annotated[
        Path | None,
        typer.Option("--collect", help="Only save the live site's files to this new folder."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="30d, 12h, or 2026-01-31T12:00. Live: 30d; saved: the first end."),
    ] = None,
    split: Annotated[
        float,
        typer.Option(help="Part of the jobs that comes before the switch.", min=0.1, max=0.95),
    ] = 0.7,
    trust: options.TrustOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", help="A rule, `default`, model:NAME (or its folder), plugin:NAME."
        ),
    ] = None,
    train: Annotated[
        Literal["none", "predictor"], typer.Option(help="What is learned from the earlier part.")
    ] = "predictor",
    backfill: Annotated[
        BackfillRule | None,
        typer.Option(help="none given: what this Slurm plays, by its SchedulerParameters."),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(help="A SchedulerParameters setting, as bf_max_job_test=1000; again."),
    ] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Show users and accounts by name.")
    ] = False,
    choose: Annotated[
        bool, typer.Option(help="Choose own, share, max_delay_s on the earlier part: 30 plays.")
    ] = True,
    report: options.ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play this site's past under Slurm's own order and under rltuned's. Changes nothing.

    Ends with the lines of [order] to write, or that the setting stays.

    Saved files, one folder: config.txt (scontrol show config), nodes.txt (scontrol -o show node),
    partitions.txt (scontrol -o show partition), sacct.txt[.gz]; --collect makes them.

    Exit codes: 0 = done, whatever the outcome; 1 = Slurm could not be asked; 2 = history, site,
    model, settings or a folder cannot be used.
    """
    loaded = settings_of(config, ("policy.trust", trust, "--trust"))
    for folder in filter(None, (report, collect_to)):
        check_new(folder)
    settings = in_force(loaded, SystemClock().now()).settings
    span = options.span_of(since, split=split, live="" if site and not collect_to else LIVE_SINCE)
    if collect_to is not None:
        with options.progress() as show:
            options.collected(settings.slurm, collect_to, span, show)
        say(f"{collect_to}: saved; rltuned backtest --site {collect_to}")
        return
    policies = {
        name: _policy(name, loaded)
        for name in dict.fromkeys(policy or [loaded.settings.policy.name, *SHIPPED])
    }
    options.trust_of(trust, policies.values())
    backfill = _backfill(backfill, policies, what_if)
    with (
        tempfile.TemporaryDirectory(prefix="rltuned-backtest-") as work,
        options.progress() as show,
    ):
        history = "the live Slurm" if site is None else str(site)
        if site is None:
            site = Path(work, "site")
            options.collected(settings.slurm, site, span, show)
        answer, past = read_record(site, span, show, backfill=backfill)
        asked = {
            "command": " ".join(["rltuned", *sys.argv[1:]]),
            "history": history,
            "orders": ", ".join(policies),
            "train": train,
            "split": split,
            "trust": loaded.settings.policy.trust,
            "interval_s": settings.daemon.interval_s,
            "bounds": _bounds(settings),
        }
        from rltuned.lab.backtest import study as studies  # noqa: PLC0415 - torch

        if what_if and past.site.backfill != "slurm":
            raise TraceError("--what-if: SchedulerType is not sched/backfill here")
        protocol, learned = studies.protocol_of(past, settings, show, fits=train == "predictor")
        study = studies.run_study(past, policies, protocol, names=names, report=show)
        found = studies.document(study, answer, asked | {"learned": learned}, names=names)
        found["choice"] = chosen_setting(loaded, past) if choose else None
        found["what_if"] = [
            studies.other_setting(
                study, text, options.changed(past.site.parameters, [text], "--what-if")
            )
            for text in what_if or ()
        ]
        if report is not None:
            options.write_report(report, studies.page_of(study, found), found)
            warn(f"report: {report / 'index.html'}")
    if as_json:
        say(options.as_json(found))
    else:
        _show(found)


def _bounds(settings: Settings) -> str:
    order, limits, knobs = settings.order, settings.limits, settings.knobs()
    return (
        f"own {order.own:g}, share {order.share:g}, clip {knobs.order.clip:g}, max_delay_s "
        f"{order.max_delay_s:g}, write_mode {limits.write_mode}, max_changes {limits.max_changes}, "
        f"hysteresis {limits.hysteresis:g}, changes per job and hour "
        f"{knobs.rules.max_writes_per_hour}"
    )


def _backfill(
    given: BackfillRule | None, policies: Mapping[str, Policy], what_if: list[str] | None
) -> BackfillRule | None:
    """What is played; None = as the site. Raises BadParameter: another package's policy cannot,
    or it has no such setting.
    """
    options.changed(Parameters(), what_if or (), "--what-if")
    if what_if and given not in {None, "slurm"}:
        raise typer.BadParameter("--what-if: only sched/backfill has these settings")
    if not any(isinstance(one, Plugin) for one in policies.values()):
        return given
    if given == "slurm" or what_if:
        raise typer.BadParameter("a policy of another package plays with --backfill easy alone")
    return given or "easy"


def _policy(name: str, loaded: Loaded) -> Policy:
    """A rule, a model, a policy of another package, or what nights have put in force. Raises
    ModelError: it cannot be used.
    """
    if name == BY_DEFAULT:
        return policy_named(DEFAULT.name, trust=DEFAULT.trust)
    asked = loaded.settings.policy
    if name == TUNED:
        asked = in_force(loaded, SystemClock().now()).settings.policy
        name = asked.name
    return policy_named(name, asked.models_dir, asked.trust)


def chosen_setting(loaded: Loaded, past: Past) -> dict[str, Any]:
    """The choice of a night, of the part before the switch, tested on the part after it: `sentence`
    and `lines` to write, and what spend finds; a sentence alone where there can be no choice.
    Raises ModelError: the policy cannot be used.
    """
    from rltuned.lab.backtest.study import as_daemon  # noqa: PLC0415 - numba
    from rltuned.lab.tune.night import spend  # noqa: PLC0415 - torch
    from rltuned.lab.tune.search import candidate_of, policies_of, training_before  # noqa: PLC0415

    settings, split_s = loaded.settings, past.split_s
    nothing: dict[str, Any] = {"lines": [], "candidates": [], "plain": []}
    if settings.policy.name == TUNED:
        return nothing | {"sentence": "`rltuned tune` chooses and tests where policy.name = tuned"}
    try:
        now = candidate_of(loaded)
        plain = policy_named(DEFAULT.name, trust=DEFAULT.trust)
        own, share, max_delay_s = PLAIN.own, PLAIN.share, PLAIN.max_delay_s
        default = replace(now, policy=plain, own=own, share=share, max_delay_s=max_delay_s)
        _, *training_s = training_before(past, split_s)
        found, won, _ = spend(
            past,
            (training_s[0], training_s[1], split_s),
            now,
            as_daemon(settings),
            price=settings.tune.longest,
            policies=policies_of(now.policy, settings.policy.models_dir),
            others=[default, now.first_come()],
        )
    except (TooLittleError, TraceError) as error:
        return nothing | {"sentence": f"No setting is chosen: {error}."}
    if won is None:
        return found | {"sentence": f"{now.name} stays: {found['why'][0]}.", "lines": []}
    lines = ["[order]", f"own = {won.own:g}", f"share = {won.share:g}"]
    if won.own or won.share:
        trust = [] if won.policy.trust is None else [f"trust = {won.policy.trust:g}"]
        lines = ["[policy]", f'name = "{won.policy.name}"', *trust, *lines]
        lines.append(f"max_delay_s = {won.max_delay_s:g}")
    return found | {"sentence": f"{won.name} is better here. Write:", "lines": lines}


# -- the short form for a terminal: how far the simulator is off first ----------------------------

COLUMNS: Final = (
    Column("order", least=14),
    Column("mean wait, s", right=True),
    Column("change", right=True),
    Column("p95 wait, s", right=True, goes=1),
    Column("slowdown", right=True, goes=2),
    Column("earlier", right=True, goes=3),
    Column("later", right=True, goes=3),
    Column("changes/h", right=True, goes=4),
)
SEARCH_COLUMNS: Final = (
    Column("after the switch", least=14),
    Column("mean wait, s", right=True),
    Column("change", right=True),
    Column("p99 wait, s", right=True, goes=1),
    Column("longest, s", right=True),
)


def _show(found: dict[str, Any]) -> None:
    whole, record = found["calibration"]["whole"], found["record"]
    rank = "" if whole["rank"] is None else f", rank correlation {whole['rank']:.2f}"
    say(found["headline"])
    say(
        f"{record['cluster']}: {record['jobs_scored']} jobs, {record['begin']} to {record['until']}"
    )
    say(f"simulator: mean wait {whole['mean']}{rank}; {found['calibration']['means']}")
    say(f"backfill played: {found['backfill']}")
    say(
        f"judged by the {record['jobs_later']} jobs from {record['switch']} on; in truth they "
        f"waited {found['real']['later']['wait_s']:.0f} s in the mean"
    )
    say(found["asked"]["learned"])
    show_table(console(), COLUMNS, list(_rows(found["orders"])))
    say(f"{sum(record['left_out'].values())} of {record['rows']} rows are not played")
    for why, count in list(record["left_out"].items())[:LEFT_OUT_SHOWN]:
        say(f"  {count} {why}")
    for one in found["what_if"]:
        changes = "; ".join(f"under {order} {change}" for order, change in one["wait_s"].items())
        say(f"with {one['change']}: mean wait {changes}")
        say(f"  {one['line']}")
    for text in record["site_left_out"][:LEFT_OUT_SHOWN]:
        say(f"not played: {text}")
    choice = found["choice"] or {"candidates": [], "lines": [], "plain": []}
    tested = [one for one in choice["candidates"] if one["period"] == "test"]
    if tested:
        orders = [choice["incumbent"] | {"order": f"in force: {choice['incumbent']['order']}"}]
        rows = [
            (
                order["order"],
                f"{order['wait_s']:.0f}",
                percent(**order["wait"]) if "wait" in order else "",
                f"{order['wait_p99_s']:.0f}",
                f"{order['wait_max_s']:.0f}",
            )
            for order in (*orders, *tested)
        ]
        show_table(console(), SEARCH_COLUMNS, rows)
    if found["choice"] is not None:
        say(choice["sentence"])
    for text in (*choice["lines"], *choice["plain"]):
        say(f"  {text}")


def _rows(orders: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, order in orders.items():
        wait, p95, slow = (order["metrics"][m] for m in ("wait_s", "wait_p95_s", "bsld"))
        if name == next(iter(orders)):
            first = f"{wait.base:.0f}", "", f"{p95.base:.0f}", f"{slow.base:.2f}"
            yield ("multifactor, simulated", *first, "", "", "")
        shares = f"{order['better']:.0%}", f"{order['worse']:.0%}"
        own = f"{wait.own:.0f}", str(wait), f"{p95.own:.0f}", f"{slow.own:.2f}"
        yield (name, *own, *shares, f"{order['moved']['per_hour']:.1f}")
