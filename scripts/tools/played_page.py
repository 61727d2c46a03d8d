"""The status page of a daemon that has looked after a generated cluster for a day, in this process.

The daemon's own loop, settings and journal run beside the simulator; only its clock is driven, so a
day takes minutes.
"""

import io
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.systemd import Notifier, SignalFlags
from rltuned.daemon.web import pages
from rltuned.daemon.web.status import Board
from rltuned.daemon.wiring import build_rig, run_times_of
from rltuned.journal.journal import Journal
from rltuned.lab.replay.trace_file import scale
from rltuned.report import style
from rltuned.settings import load
from rltuned.sim.backend import SimBackend
from rltuned.sim.cluster import preset
from rltuned.sim.dispatch import Natural
from rltuned.sim.synth import synthesize
from rltuned.sim.world import Rules, World

CLUSTER: Final = "philly-192"
GPUS: Final = 192
LOAD: Final = 1.0
JOBS: Final = 4_000
SEED: Final = 3
BEGINS: Final = 1_764_201_600.0
"""A moment in November 2025."""
SALT: Final = "salt 31"
"""Of the coin that draws off blocks."""
WARM_S: Final = 40 * 3_600.0
"""For so long Slurm has its own order before the daemon starts."""
SETTINGS: Final = """
[policy]
name = "delay"
[ladder]
stage = "full"
full_off_share = 0.25
"""


class DrivenClock:
    """Goes on by what is waited for."""

    def __init__(self) -> None:
        self._s = 0.0

    def now(self) -> float:
        return BEGINS + self._s

    def monotonic(self) -> float:
        return self._s

    def wait(self, seconds: float) -> bool:
        self._s += seconds
        return False


@contextmanager
def played(hours: float) -> Iterator[tuple[Publisher, Board]]:
    """A daemon after so many hours, and what its page shows."""
    trace = scale(synthesize("philly-like", jobs=JOBS, seed=SEED), LOAD, GPUS)
    first_s = BEGINS - WARM_S - trace.jobs[0].submit_s
    jobs = [replace(job, submit_s=job.submit_s + first_s) for job in trace.jobs]
    world = World(preset(CLUSTER), jobs, rules=Rules(natural=Natural(kind="multifactor")))
    world.advance(BEGINS)
    clock, log = DrivenClock(), make_log("console", "error", io.StringIO())
    with tempfile.TemporaryDirectory() as folder, closing(Journal(Path(folder))) as journal:
        config = Path(folder, "rltuned.toml")
        config.write_text(
            f'{SETTINGS}[daemon]\nstate_dir = "{folder}"\npause_file = "{folder}/P"\n'
        )
        config.chmod(0o600)
        loaded = load(config)
        rig = build_rig(loaded, SimBackend(world, clock.now))
        rules = rig.knobs.rules
        if rules.switchback is None:
            raise AssertionError("the stage has off blocks")
        drawn = replace(rules, switchback=replace(rules.switchback, salt=SALT))
        rig = replace(rig, knobs=replace(rig.knobs, rules=drawn))
        board = Board(clock.now, jobs=True)
        publisher = Publisher(
            Metrics(CollectorRegistry()), log, Notifier(None), clock, journal=journal, board=board
        )
        publisher.loaded(rig)
        with closing(run_times_of(loaded, None, log)) as run_times:
            loop = Loop(
                rig, clock, journal, publisher,
                orders=SignalFlags(), reload=lambda: rig, run_times=run_times,
            )  # fmt: skip
            loop.run(round(hours * 3_600.0 / rig.interval_s))
            yield publisher, board


def page_of(publisher: Publisher, board: Board) -> str:
    """The page with its style in it, and no script."""
    text = pages.answer("/", publisher.document(), board, {})[1]
    rules = f"<style>{style('page.css')}{style('status.css')}</style>"
    text = text.replace("<link rel=stylesheet href=status.css>", rules)
    return text.replace("<script src=status.js defer></script>", "")
