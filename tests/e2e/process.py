"""The real `rltuned run` as a process of its own."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.waits import PATIENCE_S, looks


class Daemon:
    """Runs until the block ends; its output lies in files.

    Args:
        folder: where the output goes.
        args: after `rltuned run`.
        environ: added to the surroundings.
        prefix: what starts it, as `tests.accounting.as_user` does.
    """

    def __init__(
        self,
        folder: Path,
        *args: str,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.out = folder / "stdout"
        self.err = folder / "stderr"
        self._command = [*prefix, sys.executable, "-m", "rltuned", "run", *args]
        self._environ = {**os.environ, **(environ or {})}

    def __enter__(self) -> Self:
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._child = subprocess.Popen(
                self._command, stdout=out, stderr=err, env=self._environ
            )  # fmt: skip
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait(timeout=PATIENCE_S)

    @property
    def pid(self) -> int:
        return self._child.pid

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def ends(self, seconds: float = PATIENCE_S) -> int:
        """Wait for its end; its exit code."""
        return self._child.wait(timeout=seconds)

    def stops(self) -> None:
        """As the service manager has it end: in order."""
        self.signal(signal.SIGTERM)
        assert self.ends() == 0

    def log(self) -> str:
        return self.err.read_text()

    def wait_for(self, seen: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Ask until it is so; AssertionError with the log when it does not come about."""
        for _ in looks(seconds):
            if seen():
                return
            assert self._child.poll() is None, f"ended before: {what}\n{self.log()}"
        raise AssertionError(f"not seen: {what}\n{self.log()}")

    def wait_for_log(self, text: str, times: int = 1, seconds: float = PATIENCE_S) -> None:
        self.wait_for(lambda: self.log().count(text) >= times, f"{times} x {text!r}", seconds)

    def url(self) -> str:
        """Where it listens, as it says in its log."""
        self.wait_for_log("/metrics")
        start = self.log().index("http://")
        return self.log()[start:].split("/metrics")[0]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url() + path, timeout=PATIENCE_S) as answer:  # noqa: S310
            text: bytes = answer.read()
        return text.decode()

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of an answer, whatever it is."""
        try:
            return 200, self.get(path)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, series: str) -> float:
        """The value of one series, written as /metrics writes it but for the label `cluster`."""
        shown = re.sub(r',?cluster="[^"]*"(?=})|cluster="[^"]*",', "", self.get("/metrics"))
        shown = shown.replace("{}", "")
        for line in shown.splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no series {series}")

    def more_cycles(self, number: int = 3) -> None:
        """Until so many have ended from now on."""
        cycles = self.metric("rltuned_cycles_total")
        self.wait_for(
            lambda: self.metric("rltuned_cycles_total") >= cycles + number, f"{number} more cycles"
        )

    def wait_for_mode(self, mode: str, *, on: bool = True) -> None:
        """Until the series of this mode says so."""
        series = f'rltuned_mode{{mode="{mode}"}}'
        self.wait_for(lambda: self.metric(series) == on, f"{mode}: {on}")
