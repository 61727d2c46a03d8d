"""The tests that drive a real Slurm, on Debian's and Ubuntu's releases (`make test-matrix`).

Each release is of another suite, in a root of its own under .run/roots/slurm that is made once
(scripts/other-slurm.sh: root and debootstrap). Nothing is skipped silently: a skip is a failure,
and what a release cannot run is left out by name, with its reason in the table.

    python -m scripts.tools.matrix [--release 24.11] [-- PYTEST ARGUMENTS]
    folders of tests among PYTEST ARGUMENTS stand for the usual ones
    --pyslurm    the contract through a real pyslurm, on 26.05 alone: built for it in the root
                 (scripts/pyslurm.sh)
    --corpus     every odd submission and update of tests/corpus.py
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET  # our own pytest wrote what we read

HOME = Path(__file__).resolve().parents[2]
ROOTS, REPORTS = HOME / ".run" / "roots" / "slurm", HOME / ".run" / "matrix"
OTHER, PYSLURM = HOME / "scripts" / "other-slurm.sh", HOME / "scripts" / "pyslurm.sh"
BUILDS = "python3-dev,cython3,python3-setuptools,python3-packaging,gcc,libslurm-dev"
"""What pyslurm is built with, in Debian's names."""


@dataclass(frozen=True)
class Release:
    """A Slurm release, the Debian suite that has it, and the tests that cannot run there.

    tests: pytest's arguments. pyslurm: through one that is built in a root of its own.
    """

    name: str
    suite: str
    left_out: tuple[tuple[str, str], ...] = ()
    tests: tuple[str, ...] = ("tests/contract", "tests/integration", "tests/e2e")
    pyslurm: bool = False

    @property
    def root(self) -> Path:
        return ROOTS / (f"{self.suite}-pyslurm" if self.pyslurm else self.suite)


WHY = "trains inside jobs: this checkout's Python is not in the root of another Debian"
IN_JOBS = (
    ("tests/integration/test_distributed.py", WHY),
    ("tests/e2e/test_tune_slurm.py::test_a_night_as_a_slurm_job", WHY),
)
RELEASES = (
    Release("22.05", "bookworm"),
    Release("23.11", "noble", IN_JOBS),
    Release("24.11", "trixie", IN_JOBS),
    Release("25.11", "resolute", IN_JOBS),
    Release("26.05", "testing", IN_JOBS),
)
THROUGH_PYSLURM = ("tests/contract", "-k", "live")
CORPUS = ("-s", "tests/faults/test_corpus.py")


@dataclass(frozen=True)
class Outcome:
    """What one release's run came to; version is what its programs say of themselves."""

    release: Release
    version: str
    passed: int
    failed: tuple[str, ...]
    took_s: float

    @property
    def row(self) -> str:
        return (
            f"{self.release.name:8} {self.release.suite:9} {self.version:8} {self.passed:6} "
            f"{len(self.failed):6} {len(self.release.left_out):8} {self.took_s:7.0f}"
        )


def prefix(release: Release) -> list[str]:
    """What goes in front of a command so that it meets this release; makes the root if need be."""
    own = _version(["slurmctld", "-V"])
    if own.startswith(f"{release.name}.") and not release.pyslurm:
        return []  # this machine's own
    folder = str(release.root)
    more = (BUILDS,) if release.pyslurm else ()
    subprocess.run(["sh", str(OTHER), "make", release.suite, folder, *more], check=True)
    if release.pyslurm:
        subprocess.run(["sh", str(PYSLURM), folder], check=True)
    return ["sh", str(OTHER), "run", folder]


def run(release: Release, more: Sequence[str]) -> Outcome:
    """Run the tests against one release."""
    try:
        before = prefix(release)
    except subprocess.CalledProcessError as error:
        return Outcome(release, "", 0, (f"its root cannot be made: {error}",), 0.0)
    version = _version([*before, "slurmctld", "-V"])
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{release.root.name}-{release.name}.xml"
    report.unlink(missing_ok=True)
    print(f"== Slurm {version or '?'} of Debian {release.suite}", flush=True)
    environ = {**os.environ, "CI": "true"}  # nothing skips
    if release.pyslurm:
        environ["RLTUNED_TEST_PYSLURM"] = str(release.root / "bin" / "pyslurm-python")
    elif release.tests == CORPUS:
        environ["RLTUNED_TEST_CORPUS"] = "whole"
    left_out = (f"--deselect={test}" for test, _ in release.left_out)
    argv = (
        *before, sys.executable, "-m", "pytest", "-q", "-m", "slurm", "-ojunit_family=xunit1",
        f"--junitxml={report}", *left_out, *release.tests, *more,
    )  # fmt: skip
    began = time.monotonic()
    subprocess.run(argv, check=False, cwd=HOME, env=environ)
    passed, failed = read_report(report)
    if not version.startswith(f"{release.name}."):
        failed = (*failed, f"the suite has Slurm {version or '?'}, not {release.name}")
    return Outcome(release, version, passed, failed, time.monotonic() - began)


def read_report(report: Path) -> tuple[int, tuple[str, ...]]:
    """How many tests passed, and the names of those that did not (a skip did not)."""
    if not report.exists():
        return 0, ("pytest wrote no report",)
    passed, failed = 0, []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314
        bad = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
        if bad:
            failed.append(f"{bad[0]}: {case.get('classname')}::{case.get('name')}")
        else:
            passed += 1
    return passed, tuple(failed)


def table(outcomes: Sequence[Outcome]) -> str:
    """The matrix, the failures by name, and what was left out with its reason."""
    lines = ["Slurm    Debian    version  passed failed left out seconds"]
    lines += [outcome.row for outcome in outcomes]
    for outcome in outcomes:
        name = outcome.release.name
        lines += [f"{name} {what}" for what in outcome.failed]
        lines += [f"{name} left out: {test} ({why})" for test, why in outcome.release.left_out]
    return "\n".join(lines)


def _version(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return ""
    return done.stdout.strip().removeprefix("slurm-wlm ")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the matrix; 1 when anything failed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.matrix")
    names = [release.name for release in RELEASES]
    parser.add_argument("--release", action="append", choices=names, help="only this one")
    parser.add_argument("--pyslurm", action="store_true", help="the contract through pyslurm")
    parser.add_argument("--corpus", action="store_true", help="the odd submissions and updates")
    parser.add_argument("more", nargs="*", help="for pytest")
    given = parser.parse_args(argv)
    wanted = [r for r in RELEASES if r.name in (given.release or names)]
    if given.corpus:
        wanted = [replace(r, tests=CORPUS, left_out=()) for r in wanted]
    if given.pyslurm:
        wanted = [Release("26.05", "testing", tests=THROUGH_PYSLURM, pyslurm=True)]
    if any(word.startswith("tests/") for word in given.more):
        wanted = [replace(r, tests=()) for r in wanted]
    if os.geteuid() != 0:
        sys.stderr.write("skipped: the matrix needs root, its releases lie in roots of their own\n")
        return 2 if os.environ.get("CI") else 0
    outcomes = [run(release, given.more) for release in wanted]
    print(table(outcomes))
    return 1 if any(o.failed or not o.passed for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
