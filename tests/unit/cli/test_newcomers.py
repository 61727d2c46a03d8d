"""What `rltuned check` says of the stamp for newcomers."""

from pathlib import Path

import pytest

from rltuned.cli.check_slurm import newcomers
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.newcomers import Stamp, publish
from rltuned.journal.journal import Journal
from rltuned.settings import Flag, load
from rltuned.slurm.config_checks import Check

STAMP = Stamp(
    cluster="c", slope=0.01, zero=5, stretch=0.3, clip=1.0, max_delay_s=9e4, partitions=("gpu",)
)


def check(path: Path | None, plugins: str = "require_timelimit,lua") -> Check:
    flags = () if path is None else (Flag("order.newcomers", str(path), "a test"),)
    return newcomers(load(None, flags), plugins)


@pytest.mark.parametrize(("good_s", "status"), [(180.0, "ok"), (-10.0, "warn")])
def test_the_age_of_the_stamp(tmp_path: Path, good_s: float, status: str) -> None:
    path, journal = tmp_path / "stamp", Journal(tmp_path)
    assert publish(path, STAMP, journal, SystemClock().now(), good_s) == ""
    found = check(path)
    assert found.status == status
    assert ("out of date" in found.detail) == (status == "warn")
    assert publish(path, None, journal, SystemClock().now(), good_s) == ""
    assert "there is no stamp" in check(path).detail
    journal.close()


def test_nobody_reads_it(tmp_path: Path) -> None:
    assert "JobSubmitPlugins=lua" in check(tmp_path / "stamp", plugins="").detail
    assert check(None).status == "ok"
    (tmp_path / "odd").write_bytes(b"until\n\xff")
    assert "there is no stamp" in check(tmp_path / "odd").detail


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    why = publish(tmp_path / "gone" / "stamp", STAMP, journal, 0.0, 180.0)
    assert why.endswith("No such file or directory")
    journal.close()


def test_the_script_reads_nothing_that_python_would_round() -> None:
    text = STAMP.model_copy(update={"slope": 1e6 / 1_209_600}).text(7.9)
    assert f"slope {1e6 / 1_209_600!r}\n" in text
    assert text.startswith("rltuned 1\nuntil 7\n")
    assert text.endswith("partition gpu\nend\n")
