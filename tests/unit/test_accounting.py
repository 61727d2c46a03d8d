"""The empty database of a test run: one for all, a second try, and a failure that says why."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import accounting
from tests.accounting import DatabaseError, copy_empty

INSTALL = """#!/bin/sh
for word; do case $word in --datadir=*) data=${word#*=} ;; esac; done
echo called >>CALLS
FAILING
mkdir "$data" && echo empty >"$data/ibdata1"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program writes that it was called; it works."""
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv(accounting.SHARED, str(tmp_path / "shared"))
    monkeypatch.setattr(accounting, "SEARCH", f"{tmp_path}:/usr/bin:/bin")
    calls = tmp_path / "calls"
    install(calls, ":")
    return calls


def install(calls: Path, failing: str) -> None:
    program = calls.parent / "mariadb-install-db"
    program.write_text(INSTALL.replace("CALLS", str(calls)).replace("FAILING", failing))
    program.chmod(0o755)


def test_labs_that_start_at_once_share_one_database(calls: Path) -> None:
    targets = [calls.parent / f"data{number}" for number in range(4)]
    with ThreadPoolExecutor(len(targets)) as pool:
        list(pool.map(copy_empty, targets))
    assert [(target / "ibdata1").read_text() for target in targets] == ["empty\n"] * 4
    assert calls.read_text() == "called\n"


def test_a_second_try_is_in_the_report(calls: Path) -> None:
    first = f'mkdir -p "$data"; [ "$(wc -l <{calls})" -gt 1 ] || {{ echo no room >&2; exit 1; }}'
    install(calls, f"{first}; rmdir $data")
    copy_empty(calls.parent / "data")
    assert (calls.parent / "data" / "ibdata1").exists()
    notes = (calls.parent / "shared" / accounting.NOTES).read_text()
    assert notes.startswith(
        "MariaDB was installed at the second try: mariadb-install-db ended with 1"
    )


def test_a_failure_shows_what_was_printed_and_what_is_free(calls: Path) -> None:
    install(calls, "echo to stdout; echo to stderr >&2; exit 3")
    with pytest.raises(DatabaseError) as caught:
        copy_empty(calls.parent / "data")
    assert calls.read_text() == "called\n" * 2
    for text in ("ended with 3", "to stdout", "to stderr", f"in {calls.parent}", "MiB of memory"):
        assert text in str(caught.value)


def test_an_installation_that_hangs_says_so(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "_INSTALL_S", 0.2)
    install(calls, "echo begins; exec sleep 60")
    with pytest.raises(DatabaseError, match=r"took more than 0.2 s(.|\n)*begins"):
        copy_empty(calls.parent / "data")
