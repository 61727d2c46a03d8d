"""The model of the settings is found, or the daemon says why not and does not start."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.core.decide import Knobs
from rltuned.daemon.web.server import Answers, QuestionServer
from rltuned.daemon.web.status import Board
from rltuned.daemon.wiring import Rig, build_rig, find_policy, model_path
from rltuned.errors import ModelError, SettingsError
from rltuned.journal.store import FILE_NAME
from rltuned.policies import shelf
from rltuned.policies.actor import load_actor
from rltuned.settings import Flag, Settings, load
from tests.builders import NOW, snapshot
from tests.bundles import small_network
from tests.configs import settings_file
from tests.fakes import FakeBackend
from tests.loops import FRESH, UNJUDGED
from tests.programs import process

ROOT = Path(__file__).resolve().parents[3]
MODEL = '[policy]\nname = "model:rltune"\n'


def test_the_default_policy_is_the_shipped_model(tmp_path: Path) -> None:
    policy, digest, schema, in_place_of = find_policy(load(settings_file(tmp_path)))
    assert policy.name == Settings().policy.name == "model:rltune"
    assert policy.trust == Settings().policy.trust
    assert digest
    assert schema
    assert not in_place_of


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
    server = QuestionServer(
        tmp_path / "socket",
        Answers(tmp_path / FILE_NAME),
        lambda: board.document(FRESH, UNJUDGED),
        state_dir=tmp_path,
    )
    with closing(server):
        status = CliRunner().invoke(app, ["status", "--config", str(config)]).stdout
    assert f"policy model:rltune, trust 1 ({actor.verdict})" in status


def test_bundles_are_found_where_pip_puts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_network_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libgomp.so.1: cannot open')\n")
    words = ("run", "--backend", "sim", "--dry-run", "--cycles", "1", "-p", "model:rltune")
    done = process(
        *words, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}, cwd=tmp_path, code=0
    )
    assert "policy=model:rltune" in done.stderr


def test_a_bundle_anywhere_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_bundle_that_others_can_change_is_refused_wherever_it_lies(tmp_path: Path) -> None:
    bundle = small_network(tmp_path / "made" / "own")
    loaded = load(settings_file(tmp_path, f'[policy]\nname = "model:{bundle}"\n'))
    assert find_policy(loaded)[0].name == "model:own"
    bundle.parent.chmod(0o777)
    with pytest.raises(ModelError, match=f"model {bundle.parent}: others may write to it"):
        find_policy(loaded)


def test_in_a_file_a_path_begins_at_the_root(tmp_path: Path) -> None:
    for name in ("made/own", "./own", f"{tmp_path}/../own"):
        loaded = load(settings_file(tmp_path, f'[policy]\nname = "model:{name}"\n'))
        with pytest.raises(SettingsError, match=r":\d+: policy.name: .* must begin with / and be"):
            find_policy(loaded)


def test_a_new_settings_file_names_a_bundle_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_network(tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    words = ("config", "init", "--offline", "-p", "model:./own", "made.toml")
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert find_policy(load(tmp_path / "made.toml"))[0].name == "model:own"
