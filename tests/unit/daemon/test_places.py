"""What a daemon finds at its start: the model, its places, and the settings that it last had."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.cli.restore import _settings
from rltuned.core.decide import Knobs
from rltuned.daemon.kept_settings import keep_settings, last_settings
from rltuned.daemon.surroundings import doubts, refuse_untrusted
from rltuned.daemon.web.board import Board
from rltuned.daemon.wiring import Rig, build_rig, find_policy, model_path
from rltuned.errors import ModelError, SettingsError
from rltuned.journal.journal import Journal
from rltuned.journal.store import SETTINGS
from rltuned.policies import shelf
from rltuned.policies.actor import load_actor
from rltuned.settings import Flag, Loaded, Settings, load
from rltuned.settings.keys import Rescue
from rltuned.settings.source import from_flags
from tests.builders import NOW, snapshot, sure
from tests.bundles import small_network
from tests.configs import settings_file
from tests.e2e.process import Daemon
from tests.fakes import FakeBackend
from tests.loops import asked
from tests.programs import process

ROOT = Path(__file__).resolve().parents[3]
MODEL = '[policy]\nname = "model:rltune"\n'


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (shutil.rmtree, "no such folder"),
        (lambda bundle: (bundle / "actor.safetensors").write_bytes(b"0" * 9), "SHA-256"),
        (lambda bundle: edited(bundle, '"schema_id": "', '"schema_id": "0'), "trained on features"),
    ],
)
def test_where_the_default_model_cannot_be_used_the_rule_orders_and_it_is_said(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    models = shutil.copytree(ROOT / "models", tmp_path / "models")
    damage(models / "rltune")
    places = f'state_dir = "{tmp_path}/state"\npause_file = "{tmp_path}/PAUSE"\n'
    config = settings_file(
        tmp_path, f'[policy]\nmodels_dir = "{models}"\n[daemon]\n{places}[http]\nport = 0\n'
    )
    rig = build_rig(load(config), FakeBackend(snapshot()))
    assert (rig.policy.name, rig.digest) == ("delay", "")
    assert rig.in_place_of.startswith("model:rltune: ")
    assert why in rig.in_place_of
    shown = CliRunner().invoke(app, ["check", "--no-slurm", "--config", str(config)])
    assert "delay orders in place of model:rltune" in " ".join(shown.output.split())
    found = CliRunner().invoke(app, ["config", "check", str(config)])
    assert found.exit_code == 0, found.output


def edited(bundle: Path, old: str, new: str) -> None:
    card = bundle / "card.json"
    text = card.read_text()
    assert old in text
    card.write_text(text.replace(old, new))


def test_what_the_training_found_is_shown_by_check_and_status(tmp_path: Path) -> None:
    actor = load_actor(ROOT / "models" / "rltune")
    assert actor.card.verdict is not None
    places = f'state_dir = "{tmp_path}"\npause_file = "{tmp_path}/PAUSE"\n'
    config = settings_file(tmp_path, f"{MODEL}[daemon]\n{places}")
    shown = CliRunner().invoke(app, ["check", "--no-slurm", "--config", str(config)]).output
    assert actor.verdict in " ".join(shown.split())
    board = Board(lambda: NOW)
    board.loaded(Rig(FakeBackend(snapshot()), actor, Knobs(), True, 60.0, tmp_path / "PAUSE"))
    server = asked(tmp_path, board=board)
    with closing(server):
        status = CliRunner().invoke(app, ["status", "--config", str(config)]).stdout
    assert f"policy model:rltune, trust 1, model {actor.digest[:12]} ({actor.verdict})" in status


def test_bundles_lie_where_pip_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, installed = tmp_path / "absent", tmp_path / "share"
    (installed / "rltune").mkdir(parents=True)
    monkeypatch.setattr(shelf, "_INSTALLED", installed)
    monkeypatch.setattr(shelf, "MODELS_DIR", absent)
    assert shelf.find_bundle(absent, "rltune") == installed / "rltune"
    assert shelf.find_bundle(absent, "gone") == absent / "gone"
    absent.mkdir()
    assert shelf.find_bundle(absent, "rltune") == absent / "rltune"


def test_a_chosen_folder_is_the_only_place(tmp_path: Path) -> None:
    own = f'[policy]\nname = "model:rltune-paper"\nmodels_dir = "{tmp_path}"\n'
    loaded = load(settings_file(tmp_path, own))
    assert model_path(loaded) == tmp_path / "rltune-paper"
    with pytest.raises(
        SettingsError, match=r'no model folder .*rltune-paper; .* policy.name = "delay"'
    ):
        find_policy(loaded)


def test_a_bundle_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = small_network(tmp_path / "made" / "own")
    config = settings_file(tmp_path, f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    monkeypatch.chdir(tmp_path)
    words = ("plan", "--backend", "sim", "--config", str(config), "--json", "-p")
    for given in (f"model:{bundle}", "model:made/own", "model:./made/../made/own"):
        found = CliRunner().invoke(app, [*words, given])
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["policy"] == "model:own"
    run = ("run", "--backend", "sim", "--dry-run", "--cycles", "1", "-p", "model:made/own")
    done = process(*run, "--config", str(config), cwd=tmp_path, code=0)
    assert "policy=model:own" in done.stderr
    named = CliRunner().invoke(app, [*words, "model:own"])  # without a / it is a name
    assert "no model folder" in str(named.exception)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("./nowhere", "no model folder .*/nowhere"),
        ("/", "card.json"),
        ("/etc/passwd", "no model folder /etc/passwd"),
        ("/" + "x" * 300, "too long"),
        ("/a\0b", "no model folder"),
    ],
)
def test_a_path_that_is_no_bundle_is_named(tmp_path: Path, given: str, why: str) -> None:
    flag = Flag("policy.name", f"model:{given}", "--policy")
    with pytest.raises((SettingsError, ModelError), match=why):
        find_policy(load(settings_file(tmp_path), (flag,)))


def test_in_a_file_a_path_begins_at_the_root(tmp_path: Path) -> None:
    for name in ("made/own", "./own", f"{tmp_path}/../own"):
        loaded = load(settings_file(tmp_path, f'[policy]\nname = "model:{name}"\n'))
        with pytest.raises(SettingsError, match=r":\d+: policy.name: .* must begin with / and be"):
            find_policy(loaded)


def test_a_new_file_names_a_bundle_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_network(tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    words = ("config", "init", "--offline", "-p", "model:./own", "made.toml")
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert find_policy(load(tmp_path / "made.toml"))[0].name == "model:own"


STRANGER = 54_321
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def loaded(folder: Path, **paths: Path) -> Loaded:
    """Settings whose places are all in one folder of ours."""
    state, pause = folder / "state", folder / "run"
    for place in (state, pause):
        place.mkdir(exist_ok=True)
    keys = {"daemon.state_dir": state, "daemon.pause_file": pause / "PAUSE"} | {
        name.replace("__", "."): path for name, path in paths.items()
    }
    return from_flags(tuple(Flag(key, str(path), "a test") for key, path in keys.items()))


TRUST: list[tuple[str, int, str, str]] = [
    ("", 0, "/usr/bin", ""),
    ("early", 0o777, "early:/usr/bin", r"slurm\.bin_dir: .*early: others may write"),
    ("", 0, "bin:/usr/bin", "not absolute"),
    ("run", 0o1777, "/usr/bin", ""),  # sticky: others can pause
    ("run", 0o777, "/usr/bin", r"daemon\.pause_file"),
    ("state", 0o777, "/usr/bin", r"daemon\.state_dir"),
]
"""A folder, its mode, PATH, and what is refused."""


@pytest.mark.parametrize("trust", TRUST)
def test_a_place_that_others_may_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: tuple[str, int, str, str]
) -> None:
    place, mode, path, refused = trust
    settings = loaded(tmp_path, slurm__conf=tmp_path / "slurm.conf")
    (tmp_path / "early").mkdir()
    monkeypatch.setenv("PATH", path.replace("early", str(tmp_path / "early")))
    if place:
        (tmp_path / place).chmod(mode)
    if not refused:
        keys = ["daemon.pause_file"] if place else []
        assert [doubt.key for doubt in refuse_untrusted(settings)] == keys
        return
    with pytest.raises(SettingsError, match=refused):
        refuse_untrusted(settings)
    if place == "state":  # a dry run takes any
        assert [d.key for d in refuse_untrusted(settings, dry_run=True)] == ["daemon.state_dir"]
        assert len(doubts(settings)) == 1


@root_only
def test_a_group_is_worth_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staff = tmp_path / "staff"
    staff.mkdir()
    os.chown(staff, 0, STRANGER)
    staff.chmod(0o2775)
    monkeypatch.setenv("PATH", f"{staff}:/usr/bin")
    (doubt,) = {str(d): d for d in refuse_untrusted(loaded(tmp_path))}.values()
    assert doubt.flaw.path == staff
    assert not doubt.fatal


def test_nothing_is_made_up_and_nothing_stops_a_start(tmp_path: Path) -> None:
    assert last_settings(tmp_path) is None
    assert last_settings(tmp_path / "absent") is None
    with closing(Journal(tmp_path)) as journal:
        journal.remember(SETTINGS, {"daemon": {"of_another_release": 1}}, NOW)
    assert last_settings(tmp_path) is None
    keep_settings(Journal(tmp_path / "absent"), Settings(), NOW)


def test_they_stand_in_for_a_spoilt_file_in_the_service_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = settings_file(tmp_path, "[daemon]\ninterval_ss = 1\n")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    with pytest.raises(SettingsError, match="interval_ss"):
        _settings(spoilt)
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}:/elsewhere")
    with pytest.raises(SettingsError, match="interval_ss"):
        _settings(spoilt)
    with closing(Journal(tmp_path)) as journal:
        keep_settings(journal, Settings(), NOW)
    assert _settings(spoilt) == Rescue()
    unclear = settings_file(tmp_path, '[scope]\npartitions = 7\n[order]\nown = "much"\n')
    assert _settings(unclear).scope.partitions == [], "an error of the scope keeps nothing back"
    assert "restoring by the settings of the last run" in capsys.readouterr().err


def test_a_reload_that_is_refused_leaves_those_in_force(tmp_path: Path) -> None:
    state, other, path = tmp_path / "state", tmp_path / "other", tmp_path / "rltuned.toml"
    for folder in (state, other):
        folder.mkdir(mode=0o700)

    def write(folder: Path, timeout_s: int) -> None:
        slurm = f"[slurm]\nbin_dir = '{tmp_path}'\ntimeout_s = {timeout_s}\n"
        path.write_text(f"[daemon]\nstate_dir = '{folder}'\n[http]\nport = 0\n{slurm}")

    write(state, 7)
    with Daemon(tmp_path, "--config", str(path)) as daemon:
        daemon.wait_for_log("loaded")
        write(other, 9)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("reload_failed")
        assert f"the journal in use is in {state}; restart" in daemon.log()
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    found = sure(last_settings(state))
    assert (found.daemon.state_dir, found.slurm.timeout_s) == (state, 7.0)
