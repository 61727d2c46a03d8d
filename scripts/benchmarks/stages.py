"""Where a cycle spends its time: its stages timed from outside, one within another.

Names that the loop and `decide` call are wrapped while a benchmark runs, so what is
measured is the daemon's own way through them and no copy of it. Every second counts once: for the
innermost stage, or for the Slurm command that was waited for.
"""

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rltuned.core import decide as deciding
from rltuned.core import ranking
from rltuned.daemon.apply import Writer
from rltuned.daemon.canary.monitor import Monitor
from rltuned.journal.journal import Journal
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.talk import CallRecord

INSIDE: Final[tuple[tuple[Any, str, str], ...]] = (
    (SlurmBackend, "observe", "parse"),
    (SlurmBackend, "load", "parse"),
    (SlurmBackend, "apply", "apply"),
    (deciding, "select", "select"),
    (deciding, "encode", "encode"),
    (deciding, "bounded", "delay"),
    (deciding, "greedy", "place"),
    (deciding, "place_jointly", "place"),
    (ranking, "numbers_of", "plan"),
    (ranking, "settle", "plan"),
    (deciding, "make_plan", "plan"),
    (deciding, "_entries", "explain"),
    (Writer, "remembered", "journal"),
    (Writer, "mark", "journal"),
    (Writer, "keep", "journal"),
    (Writer, "follow", "journal"),
    (Writer, "write", "journal"),
    (Journal, "record", "journal"),
    (Monitor, "judge", "judge"),
)
"""Who has it, by which name it is called, the stage."""
WRITING: Final = "apply"


@dataclass
class Stages:
    """Wall and processor seconds by stage.

    A command's wall time stands under `observe:NAME` or `apply:NAME`; its processor time is that
    of another process and not in here.
    """

    wall_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _within: list[tuple[str, float, float]] = field(default_factory=list)

    def clear(self) -> None:
        """Count from nothing."""
        self.wall_s.clear()
        self.cpu_s.clear()

    def called(self, call: CallRecord) -> None:
        """A command has ended: its time is its own."""
        stage = self._within[-1][0] if self._within else "observe"
        self.wall_s[stage] -= call.seconds
        kind = WRITING if stage == WRITING else "observe"
        self.wall_s[f"{kind}:{call.program}"] += call.seconds

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count what is done inside for a stage, and no longer for the one around it."""
        self._mark()
        self._within.append((stage, time.perf_counter(), time.process_time()))
        try:
            yield
        finally:
            self._mark()
            self._within.pop()
            self._go_on()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time the stages of INSIDE while this lasts."""
        kept = [(owner, name, getattr(owner, name)) for owner, name, _ in INSIDE]
        for owner, name, stage in INSIDE:
            setattr(owner, name, self._wrapped(getattr(owner, name), stage))
        try:
            yield
        finally:
            for owner, name, own in kept:
                setattr(owner, name, own)

    def _wrapped(self, own: Callable[..., Any], stage: str) -> Callable[..., Any]:
        @functools.wraps(own)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timed(stage):
                return own(*args, **kwargs)

        return timed

    def _mark(self) -> None:
        """Give the innermost stage what it has taken so far."""
        if self._within:
            stage, wall, cpu = self._within[-1]
            self.wall_s[stage] += time.perf_counter() - wall
            self.cpu_s[stage] += time.process_time() - cpu

    def _go_on(self) -> None:
        if self._within:
            stage = self._within[-1][0]
            self._within[-1] = (stage, time.perf_counter(), time.process_time())
