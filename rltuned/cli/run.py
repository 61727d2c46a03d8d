"""`rltuned run`: the daemon."""

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from rltuned.cli.flags import (
    BackendChoice,
    ConfigOption,
    PolicyOption,
    SeedOption,
    SpeedOption,
    WorldOption,
    settings_of,
)
from rltuned.cli.tables import show_cycle
from rltuned.cli.world import CommandTarget, open_world
from rltuned.core.ladder import Rung
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.ha.leader import open_lease
from rltuned.daemon.ha.lease import Lease
from rltuned.daemon.last_good_settings import keep_settings
from rltuned.daemon.logs import Log, log_reading, make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics.cycle import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.runtime import Rig
from rltuned.daemon.salt import salted
from rltuned.daemon.signals import SignalFlags, listening
from rltuned.daemon.surroundings import refuse_untrusted
from rltuned.daemon.systemd import Notifier, watchdog_interval_s
from rltuned.daemon.web.server import MetricsServer
from rltuned.daemon.web.status import Board, Showing
from rltuned.daemon.web.tls import endpoint_context
from rltuned.daemon.wiring import build_rig, reloaded
from rltuned.journal.journal import Journal
from rltuned.settings import Loaded
from rltuned.slurm.source import ReaderChoice
from rltuned.solver import TimedSolver

app = typer.Typer()


@app.command()
def run(
    *,
    config: ConfigOption = None,
    backend: WorldOption = BackendChoice.SLURM,
    dry_run: Annotated[
        bool | None,
        typer.Option(
            "--dry-run/--live",
            help="Decide and write nothing, or write: short for --stage full.",
            show_default=False,
        ),
    ] = None,
    stage: Annotated[
        Rung | None,
        typer.Option("--stage", help="Of the trust ladder, over the settings."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One cycle, then end.")] = False,
    cycles: Annotated[
        int | None, typer.Option("--cycles", min=1, help="So many cycles, then end.")
    ] = None,
    interval: Annotated[
        float | None, typer.Option("--interval", help="Seconds between two cycles.")
    ] = None,
    policy: PolicyOption = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Metrics port; 0 = any.")
    ] = None,
    speed: SpeedOption = 60.0,
    seed: SeedOption = 0,
    show: Annotated[
        bool | None,
        typer.Option("--show/--no-show", help="A table per cycle; the default with sim."),
    ] = None,
) -> None:
    """Watch the queue and rank it, every interval: the daemon.

    What it may do is the stage of the trust ladder: `[ladder] stage` in the settings, which is
    observe at first. A dry run decides whatever the stage and writes nothing; the built-in cluster
    is run dry unless a stage is given. SIGTERM ends it after the cycle, SIGHUP reloads.

    Exit codes: 0 = ended as asked; 1 = three unexpected errors in a row, or the last of a given
    number of cycles had no result, Slurm took none of its changes, or a circuit breaker is
    open; 2 = settings, model or address cannot be used.
    """
    if once and cycles is not None:
        raise typer.BadParameter("--once and --cycles exclude each other")
    if dry_run is not None and stage is not None:
        raise typer.BadParameter("--stage excludes --dry-run and --live")
    is_sim = backend is BackendChoice.SIM
    with _scratch(wanted=is_sim) as folder:

        def read() -> Loaded:
            return settings_of(
                config,
                ("ladder.stage", _stage(stage, dry_run), "--live or --stage"),
                ("daemon.interval_s", interval, "--interval"),
                ("policy.name", policy, "--policy"),
                ("http.port", 0 if is_sim and port is None else port, "--port"),
                ("daemon.state_dir", folder, "--backend sim"),
            )

        settings = read().settings
        only_looks = settings.ladder.ladder().rung is Rung.OBSERVE
        metrics = Metrics(CollectorRegistry())
        log = make_log(settings.log.format, settings.log.level)

        def heard(reading: ReaderChoice) -> None:
            metrics.reader(reading)
            log_reading(log, reading)

        lease = None if is_sim else open_lease(settings.ha, settings.slurm.timeout_s, SystemClock())
        place = open_world(
            backend,
            speed=speed,
            seed=seed,
            on_call=lambda call: metrics.command(call.program, call.seconds, ok=call.ok),
            on_reading=heard,
            lease=lease,
        )
        wants_table = is_sim if show is None else show
        with closing(lease) if lease else nullcontext():
            code = _serve(
                place,
                metrics,
                log,
                read,
                1 if once else cycles,
                lease=lease,
                dry_run=bool(dry_run) or (is_sim and only_looks),
                show=wants_table,
                is_sim=is_sim,
            )
    raise typer.Exit(code)


def _stage(stage: Rung | None, dry_run: bool | None) -> str | None:
    if dry_run is False:
        return Rung.FULL.value
    return None if stage is None else stage.value


def _serve(
    place: CommandTarget,
    metrics: Metrics,
    log: Log,
    read: Callable[[], Loaded],
    cycles: int | None,
    *,
    lease: Lease | None,
    dry_run: bool,
    show: bool,
    is_sim: bool,
) -> int:
    """Put the daemon together and let it run; returns its exit code."""
    loaded = read()
    orders = SignalFlags()
    with ExitStack() as stack:
        notifier = stack.enter_context(closing(Notifier.from_environment()))
        kept = loaded.settings.journal.keeping()
        journal = stack.enter_context(closing(Journal(loaded.settings.daemon.state_dir, kept)))
        http = loaded.settings.http
        # the jobs of the built-in cluster are nobody's
        showing = Showing(jobs=http.jobs or is_sim, users=http.users)
        board = Board(showing, place.clock.now)
        publisher = Publisher(
            metrics,
            log,
            notifier,
            place.system,
            show=show_cycle if show else None,
            journal=journal.size,
            board=board,
        )
        stack.enter_context(listening(orders, lambda stop: place.system.wake(stop=stop)))

        def assemble(settings: Loaded) -> Rig:
            for doubt in () if is_sim else refuse_untrusted(settings, dry_run=dry_run):
                log.warning("untrusted", key=doubt.key, detail=str(doubt))
            keep_settings(journal, settings.settings, place.system.now())
            settings = salted(settings, journal, place.system.now())
            rig = build_rig(settings, place.backend(settings), lease, dry_run=dry_run)
            if rig.solver is None:
                return rig
            return replace(rig, solver=TimedSolver(rig.solver, metrics.solved))

        rig = assemble(loaded)
        if http.enabled:
            server = MetricsServer(
                http.address,
                http.port,
                metrics.registry,
                publisher.health,
                status=lambda: board.document(publisher.health()),
                tls=endpoint_context(http),
                names=http.hosts,
            )
            stack.enter_context(closing(server))
            log.info("listening", metrics=f"{server.url}/metrics")
        publisher.loaded(rig)
        loop = Loop(
            rig,
            place.clock,
            journal,
            publisher,
            orders=orders,
            reload=lambda: reloaded(lambda: assemble(read())),
            heartbeat_s=watchdog_interval_s() or math.inf,
            stopwatch=place.system.monotonic,
        )
        code = loop.run(cycles)
        log.info("stopped", exit_code=code)
        notifier.stopping("stopped")
        return code


@contextmanager
def _scratch(*, wanted: bool) -> Iterator[str | None]:
    """A state folder that goes away with the simulated cluster it tells about."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rltuned-sim-") as folder:
        yield folder
