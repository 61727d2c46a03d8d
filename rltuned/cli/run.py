"""`rltuned run`: the daemon."""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from rltuned.cli import flags
from rltuned.cli.asking import open_world
from rltuned.core.ladder import Rung
from rltuned.core.starts import Expected
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.child import IdleChild
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.forecasting import Forecaster
from rltuned.daemon.kept_settings import keep_settings, salted
from rltuned.daemon.lease import open_lease
from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.observers import Logged, Publisher
from rltuned.daemon.run_times import RunTimeLearner
from rltuned.daemon.surroundings import refuse_untrusted
from rltuned.daemon.systemd import Notifier, SignalFlags, listening, watchdog_interval_s
from rltuned.daemon.web.board import Board
from rltuned.daemon.web.server import Endpoint, listen, listen_at, port_table, socket_table
from rltuned.daemon.what_if import WhatIf
from rltuned.daemon.wiring import Rig, build_rig, memory_of, reloaded, run_times_of
from rltuned.domain.kinds import Digester
from rltuned.errors import JournalError, ModelError, SettingsError
from rltuned.journal.cycles import CycleRow
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME, keep_salt
from rltuned.policies.generations import read_state, would_it_help
from rltuned.run import Call
from rltuned.settings import Loaded
from rltuned.settings.source import check_reload, needs_restart
from rltuned.slurm.pyslurm import ReaderChoice

app = typer.Typer()


DryRunOption = Annotated[
    bool | None,
    typer.Option(
        "--dry-run/--live", help="Decide and write nothing, or write: short for --stage full."
    ),
]
StageOption = Annotated[
    Rung | None, typer.Option("--stage", help="Of the trust ladder, over the settings.")
]
PortOption = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="Metrics port; 0 = any.")
]


@app.command()
def run(
    *,
    config: flags.ConfigOption = None,
    backend: flags.WorldOption = flags.BackendChoice.SLURM,
    dry_run: DryRunOption = None,
    stage: StageOption = None,
    once: Annotated[bool, typer.Option("--once", help="One cycle, then end.")] = False,
    cycles: Annotated[int | None, typer.Option(min=1, help="So many cycles, then end.")] = None,
    interval: Annotated[float | None, typer.Option(help="Seconds between two cycles.")] = None,
    policy: flags.PolicyOption = None,
    port: PortOption = None,
    speed: flags.SpeedOption = 60.0,
    seed: flags.SeedOption = 0,
) -> None:
    """Watch the queue and rank it, every interval: the daemon.

    `[ladder] stage` in the settings says what it may do: observe at first. A dry run decides
    whatever the stage and writes nothing; the built-in cluster is run dry unless a stage is given.
    SIGTERM and SIGINT end it after the cycle, and its last line says how many jobs keep what it
    wrote: `rltuned restore --all` restores that, as the service does. SIGHUP reloads.

    Exit codes: 0 = ended as asked; 1 = three unexpected errors in a row, or the last of a given
    number of cycles had no result or wrote nothing in doubt, Slurm took none of its changes, or a
    circuit breaker is open; 2 = settings, model or address cannot be used.
    """
    if once and cycles is not None:
        raise typer.BadParameter("--once and --cycles exclude each other")
    if dry_run is not None and stage is not None:
        raise typer.BadParameter("--stage excludes --dry-run and --live")
    is_sim = backend is flags.BackendChoice.SIM
    wanted = Rung.FULL if dry_run is False else stage
    with _scratch(wanted=is_sim) as folder:

        def read() -> Loaded:
            return flags.in_force(
                config,
                ("ladder.stage", wanted and wanted.value, "--live or --stage"),
                ("daemon.interval_s", interval, "--interval"),
                ("policy.name", policy, "--policy"),
                ("http.port", port, "--port"),
                ("daemon.state_dir", folder, "--backend sim"),
            )

        # the built-in cluster takes any port where none is set: a daemon may have the usual one
        if is_sim and port is None and flags.settings_of(config).origin("http.port") == "default":
            port = 0
        loaded = read()
        looks = is_sim and loaded.settings.ladder.stage == "observe"
        daemon = _Daemon(loaded, read, dry_run=bool(dry_run) or looks, is_sim=is_sim)
        code = daemon.run(1 if once else cycles, speed, seed)
    raise typer.Exit(code)


class _Daemon:
    """The daemon as a process. dry_run: decide whatever the stage, and write nothing."""

    def __init__(
        self, loaded: Loaded, read: Callable[[], Loaded], *, dry_run: bool, is_sim: bool
    ) -> None:
        self.loaded = self.in_force = loaded
        self.read, self.dry_run, self.is_sim = read, dry_run, is_sim
        settings = loaded.settings
        self.metrics, self.logged = Metrics(CollectorRegistry()), Logged()
        self.log = make_log(settings.log.format, "info")
        self.system, self.orders = SystemClock(), SignalFlags()
        self.lease = None if is_sim else open_lease(settings, self.system)
        self.notifier = Notifier.from_environment()
        state_dir, beside = settings.daemon.state_dir, settings.daemon.pause_file.parent
        self.journal = Journal(state_dir, settings.journal.keeping(), beside)

    def run(self, cycles: int | None, speed: float, seed: int) -> int:
        settings, state_dir = self.loaded.settings, self.loaded.settings.daemon.state_dir
        # the jobs of the built-in cluster belong to no user
        jobs, users = settings.http.jobs or self.is_sim, settings.http.users
        with ExitStack() as stack:
            if self.lease is not None:
                stack.enter_context(closing(self.lease))
            stack.enter_context(closing(self.notifier))
            stack.enter_context(closing(self.journal))
            self.clock, self.backend = open_world(
                flags.BackendChoice.SIM if self.is_sim else flags.BackendChoice.SLURM,
                self.system,
                speed=speed,
                seed=seed,
                on_call=self._on_call,
                on_reading=self._on_reading,
                lease=self.lease,
                digester=self._digester,
            )
            stack.enter_context(listening(self.orders, lambda stop: self.system.wake(stop=stop)))
            rig = self._assemble(self.loaded)
            keep_settings(self.journal, settings, self.system.now())
            self.run_times = stack.enter_context(closing(self._learner(rig)))
            child = IdleChild()
            forecaster = Forecaster(state_dir, self.log, self.run_times.of_running, child)
            stack.enter_context(closing(forecaster))

            def forecast() -> Expected | None:
                return forecaster.fresh(self.clock.now())

            def last_week() -> dict[str, object] | None:
                return None if self.is_sim else would_it_help(state_dir, self.system.now())

            board = Board(
                self.clock.now,
                partial(_past, self.journal),
                forecast,
                last_week,
                self._learned,
                jobs=jobs,
                users=users,
                journal=state_dir / FILE_NAME,
                what_if=WhatIf(child, lambda: self.in_force.settings, lambda: forecaster.last),
            )
            is_judged = rig.knobs.rules.switchback is not None
            publisher = Publisher(
                self.metrics,
                self.log,
                self.notifier,
                self.system,
                board=board,
                failed_nights=lambda: read_state(state_dir).get("failed"),
                forecaster=forecaster,
                before=CanaryStatus.before(self.journal, rig.model if is_judged else None),
            )
            for server in self._servers(publisher, board):
                stack.enter_context(closing(server))
            publisher.loaded(rig)
            loop = Loop(
                rig,
                self.clock,
                self.journal,
                publisher,
                orders=self.orders,
                reload=lambda: reloaded(self._reassemble),
                run_times=self.run_times,
                heartbeat_s=watchdog_interval_s() or math.inf,
                stopwatch=self.system.monotonic,
            )
            code = loop.run(cycles)
            self._stopped(code)
            self.notifier.stopping("stopped")
            return code

    def _on_call(self, call: Call) -> None:
        """Count a finished command; what it says beside a good answer is logged once."""
        self.metrics.command(call.program, call.seconds, ok=call.ok)
        for remark in self.logged.remarks(call.program, call.remarks):
            self.log.warning(
                "slurm_remark", command=call.program, detail=remark, then="its answer is used"
            )

    def _on_reading(self, reading: ReaderChoice) -> None:
        """A line when the reader of the jobs is another one than before."""
        line = self.log.warning if reading.stands_in else self.log.info
        line("reader", wanted=reading.wanted, reader=reading.reader, detail=reading.detail)

    def _digester(self, loaded: Loaded) -> Digester | None:
        """What makes the kinds; without a usable salt jobs have none."""
        wanted = loaded.settings.predictor.kinds
        salt = self._salt() if wanted else None
        return None if salt is None else Digester(salt, wanted)

    def _salt(self) -> bytes | None:
        """Of all digests, drawn at first use; None = it cannot be used."""
        try:
            return keep_salt(self.loaded.settings.daemon.state_dir)
        except JournalError as error:
            self.log.warning("no_kinds", detail=str(error))
            return None

    def _learner(self, rig: Rig) -> RunTimeLearner:
        """What learns from ended jobs."""
        try:
            return run_times_of(self.loaded, self._salt(), self.log, rig.backend)
        except ModelError as error:
            self.log.warning("no_predictor", detail=str(error))
            return RunTimeLearner(None, None, self.log)

    def _learned(self) -> dict[str, object] | None:
        return asdict(self.run_times.status) if self.run_times.predicts else None

    def _stopped(self, code: int) -> None:
        """The last line: what is left in Slurm, and the command that takes it back."""
        try:
            left: int | str = len(self.journal.carrying())
        except JournalError as error:
            left = f"unknown: {error}"
        if not left:
            self.log.info("stopped", exit_code=code)
            return
        then = "`rltuned restore --all` gives them back, as the service does when it stops"
        self.log.warning("stopped", exit_code=code, jobs_with_numbers=left, then=then)

    def _assemble(self, loaded: Loaded) -> Rig:
        for doubt in () if self.is_sim else refuse_untrusted(loaded, dry_run=self.dry_run):
            self.log.warning("untrusted", key=doubt.key, detail=str(doubt))
        loaded = salted(loaded, self.journal, self.system.now())
        return build_rig(loaded, self.backend(loaded), self.lease, dry_run=self.dry_run)

    def _reassemble(self) -> Rig:
        """The same upon a reload, which takes over another predictor as well."""
        loaded = self.read()
        check_reload(self.in_force, loaded)
        rig = self._assemble(loaded)
        if self.run_times.predicts and loaded.settings.predictor.enabled:
            self.run_times.exchange(memory_of(loaded.settings, self._salt() or b""))
        if changed := needs_restart(self.loaded.settings, loaded.settings):
            self.log.warning("needs_restart", keys=changed, then="the values of the start stay")
        keep_settings(self.journal, loaded.settings, self.system.now())
        self.in_force = loaded
        return rig

    def _servers(self, publisher: Publisher, board: Board) -> Iterator[Endpoint]:
        """The socket, but not of the built-in cluster (without it the daemon orders the queue too),
        and the port.
        """
        daemon, http = self.loaded.settings.daemon, self.loaded.settings.http
        try:
            if not self.is_sim:
                table = socket_table(publisher.document, board, daemon.state_dir)
                yield Endpoint(listen_at(daemon.socket), table, path=daemon.socket)
        except SettingsError as error:
            self.log.warning("no_questions", detail=str(error))
        if http.enabled:
            found = port_table(self.metrics.exposed, publisher.health, publisher.document, board)
            server = Endpoint(listen(http.address, http.port), found)
            self.log.info("listening", metrics=f"{server.url}/metrics")
            yield server


def _past(journal: Journal, cluster: str, since: float) -> Iterable[CycleRow]:
    """What the journal knows; a page can do without."""
    try:
        return journal.past(cluster, since)
    except JournalError:
        return ()


@contextmanager
def _scratch(*, wanted: bool) -> Iterator[str | None]:
    """A state folder that goes away with the simulated cluster it tells about."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rltuned-sim-") as folder:
        yield folder
