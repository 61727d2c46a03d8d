"""A settings file of the release before: what is gone has no effect, and one warning each."""

import json
from pathlib import Path

import pytest

from rltuned.errors import SettingsError
from rltuned.settings import load
from rltuned.settings.retired import RETIRED, why_gone
from tests.configs import settings_file
from tests.unit.cli.runner import run

TEXT = """\
[order]
own = 0.2
forgotten = "/run/x"
[bygone]
this = 1
that = 2
[[sla]]
qos = "a"
lifted = 3
"""
FOUND = {3: "order.forgotten", 5: "bygone.this", 6: "bygone.that", 9: "sla.lifted"}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, in a release that has dropped those keys."""
    for key in ("order.forgotten", "bygone", "sla.lifted"):
        monkeypatch.setitem(RETIRED, key, "nothing takes its place")
    return settings_file(tmp_path, TEXT)


def test_each_is_named_with_its_line_and_left_out(path: Path) -> None:
    loaded = load(path)
    assert loaded.settings.order.own == 0.2
    assert loaded.settings.sla[0].qos == "a"
    says = "is gone and has no effect; nothing takes its place; take the line out"
    found = {f"{path}:{line}: {key}: {says}" for line, key in FOUND.items()}
    assert set(loaded.warnings) == found
    assert len(loaded.warnings) == len(found)


@pytest.mark.parametrize("text", ["[bygone]\n", "bygone = 3\n", "bygone.this = 1\n"])
def test_a_table_that_is_gone_may_have_any_content(path: Path, text: str) -> None:
    path.write_text(text)
    (warning,) = load(path).warnings
    assert warning.startswith(f"{path}:1: bygone")


@pytest.mark.parametrize("text", ["[order]\nforgoten = 1\n", "[bygones]\n", "order = 3\n"])
def test_what_is_not_in_the_table_stays_an_error(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(SettingsError, match=rf"{path}:\d: "):
        load(path)


def test_a_key_that_is_declared_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RETIRED, "order.own", "never")
    assert load(path).settings.order.own == 0.2


def test_config_check_warns_and_accepts(path: Path) -> None:
    done = run("config", "check", str(path))
    assert done.stdout == f"{path}: ok\n"
    assert [f":{n}: {key}: is gone" in done.stderr for n, key in FOUND.items()] == [True] * 4
    assert done.stderr.count("is gone") == 4


def test_config_show_leaves_them_out(path: Path) -> None:
    shown = json.loads(run("config", "show", "--json", "--config", str(path)).stdout)
    assert shown["order.own"] == {"value": 0.2, "source": f"{path}:2"}
    assert not {"order.forgotten", "bygone.this", "sla.0.lifted"} & shown.keys()


def test_the_daemon_logs_each_once(path: Path) -> None:
    done = run("run", "--backend", "sim", "--once", "--no-show", "--config", str(path))
    assert done.exit_code == 0
    assert done.stderr.count("retired_setting") == 4
    assert f"{path}:3: order.forgotten: is gone" in done.stderr


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('[order]\nnewcomers = "/run/rltuned/newcomers"\n', 2, "order.newcomers"),
        ('[[sla]]\nqos = "a"\nlift_jobs = 3\n', 3, "sla.lift_jobs"),
        ("[groups]\nboost = 0.5\n", 2, "groups.boost"),
    ],
)
def test_what_0_2_0_had(tmp_path: Path, text: str, line: int, key: str) -> None:
    path = settings_file(tmp_path, text)
    (warning,) = load(path).warnings
    assert warning.startswith(f"{path}:{line}: {key}: is gone")


def test_every_entry_names_a_table_or_a_key_and_says_what_holds() -> None:
    for name, reason in RETIRED.items():
        assert name.count(".") <= 1
        assert f"; {reason}; " in why_gone(name)


def test_the_stretch_of_0_2_0_is_read_as_own(path: Path) -> None:
    path.write_text("[order]\nstretch = 0.3\n")
    loaded = load(path)
    assert loaded.settings.order.own == 0.3
    assert loaded.warnings == (
        f"{path}:2: order.stretch: is read as own, for this release alone; rename it",
    )
    assert loaded.origin("order.own") == f"{path}:2"
    path.write_text("[order]\nstretch = 0.3\nown = 0.2\n")
    assert load(path).settings.order.own == 0.2
    path.write_text("[order]\nstretch = -1\n")
    with pytest.raises(SettingsError, match=rf"{path}:2: order\.own"):
        load(path)
