"""`rltuned backtest` as it is called: files in, figures and a page out, nothing half-written."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.errors import BackendError, ModelError, TraceError
from rltuned.lab.cli.backtest import app
from tests.backtest.worlds import jobs, site
from tests.browser import check_page
from tests.configs import settings_file
from tests.lab import SEARCH
from tests.packages import install
from tests.programs import executable

SINCE = "2023-11-14T22:13:20+00:00"
CHEAP = ("--since", SINCE, "--train", "none", "-p", "saf")


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site(tmp_path_factory.mktemp("site"), jobs(110))


@pytest.fixture
def calm(tmp_path: Path) -> tuple[str, str]:
    """Settings with a cycle every ten minutes: the play is short."""
    config = settings_file(tmp_path, "[daemon]\ninterval_s = 600\n")
    return ("--config", str(config))


def test_page_and_json_say_the_same(known: Path, calm: tuple[str, str], tmp_path: Path) -> None:
    report = tmp_path / "report"
    played = ("--backfill", "easy", "--report", str(report))  # as the record was made
    reply = json.loads(run(*calm, "--site", str(known), *CHEAP, *played, "--json"))
    assert reply == json.loads((report / "results.json").read_text())
    whole = reply["calibration"]["whole"]
    assert (whole["off_s"], reply["calibration"]["verdict"]) == (0.0, "close")
    page = (report / "index.html").read_text()
    check_page(page, tmp_path)
    assert page.index(reply["headline"]) < page.index("How far is the simulator off?")
    assert page.index("How far is the simulator off?") < page.index("What would another order")
    assert page.count("<svg") > 2
    assert not [w for w in ("src=", "href='http", 'href="http', "url(http") if w in page]
    change = reply["orders"]["saf"]["metrics"]["wait_s"]["change"]
    assert f"{change:+.1%}" in page
    users = {j.user for j in jobs(110)}
    assert not [u for u in users if f">{u}<" in page or f'"{u}"' in json.dumps(reply)]


def test_where_nights_choose_what_is_in_force_is_played(known: Path, tmp_path: Path) -> None:
    """While no generation was promoted, that is the default policy."""
    config = settings_file(
        tmp_path,
        f'[daemon]\ninterval_s = 600\nstate_dir = "{tmp_path}"\n[policy]\nname = "tuned"\n',
    )
    words = ("--config", str(config), "--site", str(known), *CHEAP, "-p", "tuned")
    found = json.loads(run(*words, "-p", "model:rltune", "--json"))["orders"]
    assert found["tuned"]["metrics"] == found["model:rltune"]["metrics"]


def test_without_trust_a_network_waits_as_the_rule_does(known: Path, calm: tuple[str, str]) -> None:
    words = (*calm, "--site", str(known), *CHEAP, "-p", "model:rltune", "-p", "delay", "--json")
    nothing, whole = (json.loads(run(*words, "--trust", trust)) for trust in ("0", "1"))
    assert nothing["orders"]["model:rltune"]["metrics"] == nothing["orders"]["delay"]["metrics"]
    assert whole["orders"]["model:rltune"]["moved"] != whole["orders"]["delay"]["moved"]
    assert (nothing["asked"]["trust"], whole["asked"]["trust"]) == (0.0, 1.0)


def test_a_policy_of_another_package_is_played_as_the_daemon_would_ask_it(
    known: Path, calm: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is the rule `saf` waits as the rule does."""
    code = "def area(matrix):\n    return matrix.limit_s * matrix.size"
    install(tmp_path / "ours", monkeypatch, code, "area")
    words = (*calm, "--site", str(known), *CHEAP, "-p", "plugin:area", "--json")
    found = json.loads(run(*words))["orders"]
    assert found["plugin:area"]["metrics"] == found["saf"]["metrics"]
    assert found["plugin:area"]["moved"] == found["saf"]["moved"]
    assert found["saf"]["moved"]["changes"] > 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-p", "best"), "no policy 'best'"),
        (("-p", "plugin:ours"), "policy plugin:ours: no installed package"),
    ],
)
def test_wrong_use_leaves_nothing(
    known: Path, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    report = tmp_path / "report"
    with pytest.raises((TraceError, ModelError), match=why):
        run("--site", str(known), *CHEAP, *words, "--report", str(report))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(TraceError, match="not empty"):
        run("--site", "/nowhere", *CHEAP, "--report", str(tmp_path))


def test_too_few_to_learn_from_is_reported(known: Path, calm: tuple[str, str]) -> None:
    reply = json.loads(run(*calm, "--site", str(known), "--since", SINCE, "-p", "saf", "--json"))
    assert "200 are needed" in reply["asked"]["learned"]
    assert list(reply["orders"]) == ["saf"]


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="scontrol is not installed"):
        run("--collect", str(tmp_path / "saved"))
    assert list(tmp_path.iterdir()) == []


def test_without_slurmdbd_there_is_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    said = "echo 'AccountingStorageType   = accounting_storage/none'"
    executable(tmp_path / "bin" / "scontrol", f"#!/bin/sh\n{said}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{SEARCH}")
    with pytest.raises(TraceError, match="keeps no history"):
        run("--collect", str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()
