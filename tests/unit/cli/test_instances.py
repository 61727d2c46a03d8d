"""--all: every daemon of this machine on one page, one that cannot be read among them."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.errors import SettingsError
from tests.loops import asked
from tests.unit.cli.journalled import live


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Settings of two clusters, a third file that is none, and something else."""
    (tmp_path / "bin").mkdir()
    for name in ("alpha", "beta"):
        state = tmp_path / "state" / name
        state.mkdir(parents=True)
        live(state)
        places = f'state_dir = "{state}"\npause_file = "{state}/PAUSE"\n'
        more = f'[daemon]\n{places}[slurm]\nbin_dir = "{tmp_path / "bin"}"\n'
        (tmp_path / f"{name}.toml").write_text(more)
    with closing(asked(tmp_path / "state" / "alpha")):
        (tmp_path / "gamma.toml").write_text("[order]\nown = -1.0\n")
        (tmp_path / "notes.txt").write_text("no settings")
        yield tmp_path


def document(*args: str, code: int) -> Any:
    done = run(*args)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_status_of_all(folder: Path) -> None:
    config = ("--config", str(folder / "alpha.toml"))
    found = document("status", "--all", "--json", *config, code=2)
    alpha, beta, gamma = found["instances"]
    assert [one["instance"] for one in found["instances"]] == ["alpha", "beta", "gamma"]
    assert (alpha["ok"], alpha["daemon"]["ready"]) == (True, True)
    assert beta["journal"]["cycle"]["cluster"] == "test"
    assert "gamma.toml:2: order.own" in gamma["error"]
    assert not found["ok"]
    done = run("status", "--all", *config)
    head, *rows = done.stdout.splitlines()
    assert head.split()[:4] == ["instance", "cluster", "stage", "policy"]
    assert [row.split()[0] for row in rows] == ["alpha", "beta", "gamma"]
    assert rows[1].split()[1] == "test"
    (folder / "gamma.toml").unlink()
    (folder / "beta.toml").unlink()
    assert document("status", "--all", "--json", *config, code=0)["ok"]


def test_a_folder_without_settings_is_refused(tmp_path: Path) -> None:
    for place, says in ((tmp_path, "no settings file"), (tmp_path / "none", "No such file")):
        done = run("status", "--all", "--config", str(place / "x.toml"))
        assert isinstance(done.exception, SettingsError)
        assert says in str(done.exception)


def test_models_of_all(folder: Path) -> None:
    rows = document("models", "list", "--all", "--json", "-c", str(folder / "x.toml"), code=1)
    names = {row["instance"] for row in rows if not row["error"]}
    assert names == {"alpha", "beta"}
    (wrong,) = (row for row in rows if row["error"])
    assert wrong["instance"] == "gamma"
    assert run("models", "list", str(folder), "--all").exit_code == 2


def test_tune_of_all_goes_on_after_one_that_fails(folder: Path) -> None:
    config = ("-c", str(folder / "x.toml"), "--dry-run")
    found = document("tune", "--all", "--json", *config, code=2)["instances"]
    assert [(one["instance"], one["verdict"]) for one in found] == [
        ("alpha", "failed"), ("beta", "failed"), ("gamma", "failed"),
    ]  # fmt: skip
    assert "order.own" in found[2]["why"][0]
    assert run("tune", "--all", "--site", str(folder), *config).exit_code == 2
