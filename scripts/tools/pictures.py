"""The pictures of the README and the docs, from the shipped code and settings (`make pictures`).

    docs/img/demo.svg       what `make demo` prints
    docs/img/status-*.png   the status page of a daemon at stage full, after a day of jobs like
                            those of Philly at load 1: its own loop, settings and journal beside
                            the simulator; only its clock is driven, so a day takes minutes
    docs/img/pictures.json  what they were made from; a test finds pictures that are out of date

Needs Chromium. Takes about four minutes.
"""

import hashlib
import io
import json
import re
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.text import Text

from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.systemd import Notifier, SignalFlags
from rltuned.daemon.web import pages
from rltuned.daemon.web.board import Board
from rltuned.daemon.wiring import build_rig, run_times_of
from rltuned.journal.journal import Journal
from rltuned.lab.replay.trace_file import scale
from rltuned.report import style
from rltuned.settings import load
from rltuned.sim.backend import SimBackend
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.world import Natural, Rules, World

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "img"
RECORD = IMAGES / "pictures.json"
SHOTS = {"light": ("1240,1120", 1), "dark": ("1240,1120", 0), "narrow": ("500,2000", 1)}
"""Size, and the preferred scheme as Chromium numbers it."""
SOURCES = ("page.css", "status.css", "status.html", "macros.html", "frame.html")
"""Templates of the status page."""
CLUSTER, GPUS, LOAD, JOBS, SEED, HOURS = "philly-192", 192, 1.0, 4_000, 3, 26.0
BEGINS: Final = 1_764_201_600.0  # a moment in November 2025
WARM_S: Final = 40 * 3_600.0
"""For so long Slurm has its own order before the daemon starts."""
SALT: Final = "salt 31"
"""Of the coin that draws off blocks."""
SETTINGS: Final = """
[policy]
name = "delay"
[ladder]
stage = "full"
full_off_share = 0.25
[daemon]
state_dir = "{folder}"
pause_file = "{folder}/P"
"""


def printed() -> str:
    """What the demo prints."""
    argv = [sys.executable, "-m", "scripts.tools.demo"]
    return subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.rstrip()


def draw_demo(text: str) -> None:
    console = Console(record=True, width=96, file=io.StringIO())
    console.print(Text("$ make demo\n" + text))
    drawn = console.export_svg(title="rltuned, a day of jobs like those of Philly")
    # no fonts from elsewhere: a page that shows the picture must not call a third party
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    (IMAGES / "demo.svg").write_text(drawn)


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


def played(folder: Path) -> tuple[str, str]:
    """The page of a daemon after HOURS, with its style in it and no script; what it shows."""
    trace = scale(synthesize("philly-like", jobs=JOBS, seed=SEED), LOAD, GPUS)
    first_s = BEGINS - WARM_S - trace.jobs[0].submit_s
    jobs = [replace(job, submit_s=job.submit_s + first_s) for job in trace.jobs]
    world = World(preset(CLUSTER), jobs, rules=Rules(natural=Natural(kind="multifactor")))
    world.advance(BEGINS)
    clock, log = DrivenClock(), make_log("console", "error", io.StringIO())
    config = folder / "rltuned.toml"
    config.write_text(SETTINGS.format(folder=folder))
    config.chmod(0o600)
    with closing(Journal(folder)) as journal:
        loaded = load(config)
        rig = build_rig(loaded, SimBackend(world, clock.now))
        rules = rig.knobs.rules
        if rules.switchback is None:
            raise AssertionError("the stage has off blocks")
        drawn = replace(rules, switchback=replace(rules.switchback, salt=SALT))
        rig = replace(rig, knobs=replace(rig.knobs, rules=drawn))
        board, metrics = Board(clock.now, jobs=True), Metrics(CollectorRegistry())
        ear = Publisher(metrics, log, Notifier(None), clock, board=board)
        ear.loaded(rig)
        with closing(run_times_of(loaded, None, log)) as run_times:
            loop = Loop(
                rig, clock, journal, ear, orders=SignalFlags(), reload=lambda: rig,
                run_times=run_times,
            )  # fmt: skip
            loop.run(round(HOURS * 3_600.0 / rig.interval_s))
            seen = ear.document()
            text = pages.page(seen, board, {})
    css = f"<style>{style('page.css')}{style('status.css')}</style>"
    text = text.replace("<link rel=stylesheet href=status.css>", css)
    text = text.replace("<script src=status.js defer></script>", "")
    return text, f"{seen['policy']}, stage {seen['stage']}"


def shoot() -> str:
    """Photograph the status page; returns the policy and the stage that it shows."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        text, shown = played(Path(folder))
        page.write_text(text)
        for name, (size, scheme) in SHOTS.items():
            argv = [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu",
                "--hide-scrollbars", f"--user-data-dir={folder}/{name}",
                f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={size}",
                f"--screenshot={IMAGES / f'status-{name}.png'}", page.as_uri(),
            ]  # fmt: skip
            subprocess.run(argv, check=True, capture_output=True, timeout=120)
    return shown


def templates() -> str:
    """Digest of what the status page is made of."""
    folder = ROOT / "rltuned" / "report" / "templates"
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    text = printed()
    draw_demo(text)
    shown = shoot()
    drawn = [IMAGES / "demo.svg", *(IMAGES / f"status-{name}.png" for name in SHOTS)]
    record = {"demo": text.splitlines(), "status": shown, "templates": templates(),
              "sha256": {path.name: digest(path) for path in drawn}}  # fmt: skip
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
