"""Generations of a site's order: whole, unchangeable, and followed by a link that never dangles."""

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rltuned.daemon.clock import SystemClock
from rltuned.daemon.wiring import build_rig, configured_predictor, find_policy, in_force
from rltuned.errors import ModelError
from rltuned.policies import generations
from rltuned.policies.generations import (
    LOG,
    MANIFEST,
    ROLES,
    Generations,
    TunedOrder,
    read_state,
    would_it_help,
    write_state,
)
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings.source import Flag, from_flags
from rltuned.sim.backend import demo_backend
from tests.builders import sure
from tests.bundles import small_network

MODELS = Path(__file__).resolve().parents[2] / "models"
RULE = TunedOrder(policy="delay", own=0.3, share=0.75, max_delay_s=86_400.0)
SITE = RULE.model_copy(update={"site_predictor": True})
MODEL = RULE.model_copy(update={"policy": "model"})
PREDICTOR = {"predictor": MODELS / "run-times"}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"model": small_network(tmp_path_factory.mktemp("bundle") / "small")}


@pytest.fixture
def store(tmp_path: Path) -> Generations:
    return Generations(tmp_path)


def test_a_generation_is_read_as_it_was_made(store: Generations) -> None:
    made = store.add(SITE, PREDICTOR)
    assert made.name.startswith("gen-000001-")
    assert store.read(made.name) == made
    assert store.names() == [made.name]
    assert [store.named_by(role) for role in ROLES] == [None] * 3
    assert store.add(RULE, {}).name.startswith("gen-000002-")
    files = [p for p in made.path.rglob("*") if p.is_file()]
    assert len(files) == 4
    assert not any(p.stat().st_mode & 0o222 for p in files), "no file of it can be written"


@pytest.mark.parametrize("name", ["generation.json", "model/card.json", "model/parity.npz"])
def test_a_changed_file_is_found(store: Generations, network: dict[str, Path], name: str) -> None:
    made = store.add(MODEL, network)
    file = made.path / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(bytes(data))
    with pytest.raises(ModelError, match=r"SHA-256|says"):
        store.read(made.name)
    with pytest.raises(ModelError):
        store.promote(made.name, at=0.0)
    assert store.named_by("current") is None


@pytest.mark.parametrize("name", ["../secret", "model/../../secret", "/etc/passwd", "secret", ""])
def test_a_manifest_names_files_of_its_own_folder_alone(store: Generations, name: str) -> None:
    """Another file was read, and the beginning of its SHA-256 was in the message."""
    made = store.add(RULE, {}).path
    secret = store.folder / "secret"
    secret.write_text("x")
    named = TunedOrder.model_validate_json((made / MANIFEST).read_bytes())
    data = named.model_copy(update={"files_sha256": {name: "0"}}).model_dump_json().encode()
    other = made.with_name(f"gen-000002-{hashlib.sha256(data).hexdigest()[:12]}")
    other.mkdir()
    (other / MANIFEST).write_bytes(data)
    with pytest.raises(ModelError, match="is no file of a generation"):
        store.read(other.name)


@pytest.mark.parametrize(
    ("order", "parts", "words"),
    [
        (RULE.model_copy(update={"policy": "sooner"}), {}, "no rule named 'sooner'"),
        (MODEL, {}, "no such folder"),
        (SITE, {}, "no such folder"),
        (MODEL, {"model": MODELS / "run-times"}, r"card\.json"),
    ],
)
def test_what_cannot_be_used_is_never_made(
    store: Generations, order: TunedOrder, parts: dict[str, Path], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        store.add(order, parts)
    assert store.names() == []


def test_a_promotion_and_the_way_back(store: Generations) -> None:
    first, second = store.add(RULE, {}), store.add(SITE, PREDICTOR)
    store.promote(first.name, at=1.0)
    store.propose(second.name, at=2.0)
    assert store.read("candidate") == second
    store.promote(at=3.0, why="better")
    store.promote(second.name, at=3.5)  # again: the way back stays, and nothing is noted
    now = [store.named_by(role) for role in ROLES]
    assert now == [second.name, first.name, None]
    assert store.rollback(at=4.0) == first
    assert [store.named_by(role) for role in ROLES] == [first.name, None, None]
    assert store.rollback(at=5.0) is None
    assert store.named_by("current") is None
    with pytest.raises(ModelError, match="nothing to undo"):
        store.rollback(at=6.0)
    noted = [(line["at"], line["what"], line["why"]) for line in store.log()]
    assert noted == [
        (1.0, "promoted", ""), (2.0, "proposed", ""), (3.0, "promoted", "better"),
        (4.0, "rolled_back", ""), (5.0, "rolled_back", ""),
    ]  # fmt: skip


def test_a_damaged_line_of_the_log_costs_that_line(store: Generations) -> None:
    store.promote(store.add(RULE, {}).name, at=1.0)
    log = store.folder / LOG
    damage = b'5\n{}\n{"what": "promoted", "at": null, "generation": ""}\n{"at": 2.0, "what": "prom'
    log.write_bytes(log.read_bytes() + damage)
    assert store.promoted_at() == 1.0
    store.propose(store.add(RULE, {}).name, at=3.0)
    store.withdraw(at=4.0)
    assert [line["what"] for line in store.log()] == ["promoted", "withdrawn"]


def test_where_nothing_was_made_nothing_is_made(store: Generations) -> None:
    for change in (store.promote, store.rollback, store.withdraw):
        with pytest.raises(ModelError, match=str(store.folder)):
            change(at=0.0)
    assert not store.folder.exists()


def test_a_link_that_leads_elsewhere_is_refused(store: Generations, tmp_path: Path) -> None:
    store.promote(store.add(RULE, {}).name, at=0.0)
    link = store.folder / "current"
    link.unlink()
    link.symlink_to(tmp_path)
    with pytest.raises(ModelError, match="is no generation"):
        store.read("current")


def test_old_generations_go_and_named_ones_stay(
    store: Generations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "KEPT", 2)
    names = [store.add(RULE, {}).name]
    store.promote(names[0], at=0.0)
    names += [store.add(RULE, {}).name for _ in range(4)]
    assert store.names() == [names[0], *names[3:]]
    assert store.read("current").name == names[0]


STEPS: dict[str, Callable[[Generations], object]] = {
    "add": lambda s: s.add(SITE, PREDICTOR),
    "propose": lambda s: s.propose(s.names()[0], at=0.0),
    "promote": lambda s: s.promote(s.names()[-1], at=0.0),
    "rollback": lambda s: s.rollback(at=0.0),
}


def killed_at(line: int, step: Callable[[], object]) -> bool:
    """Whether a process that is killed at so many lines of the store got that far."""
    child = os.fork()
    if child == 0:
        seen = 0

        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal seen
            if frame.f_code.co_filename != generations.__file__:
                return None
            seen += event == "line"
            if seen == line:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        step()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", STEPS)
def test_a_kill_at_any_line_leaves_what_verifies(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = 0
    while True:
        line += 1
        store = Generations(tmp_path / str(line))
        monkeypatch.setattr(generations, "KEPT", 4)
        made = [store.add(RULE, {}).name for _ in range(4)]
        for before in made[1:3]:
            store.promote(before, at=0.0)
        monkeypatch.setattr(generations, "KEPT", 2)  # so that adding removes as well
        killed = killed_at(line, lambda: STEPS[name](store))  # noqa: B023 - called at once
        sure(store.named_by("current"))
        assert store.read("current").name in {*made}
        for role in ROLES:
            assert store.named_by(role) is None or store.read(role).name == store.named_by(role)
        for found in store.names():
            store.read(found)
        # the next process is not hindered by what the last one left
        again = store.add(RULE, {})
        assert store.promote(again.name, at=0.0) == store.read("current")
        if not killed:
            break
    assert line > 10


def test_the_daemon_follows_what_is_in_force(tmp_path: Path, network: dict[str, Path]) -> None:
    store = Generations(tmp_path)
    given = {"policy.name": "tuned", "daemon.state_dir": tmp_path, "order.own": 0.2}
    loaded = from_flags(tuple(Flag(name, value, "test") for name, value in given.items()))
    untuned = in_force(loaded, 0.0)
    assert (untuned.generation, untuned.settings.order.own) == ("", 0.2)
    assert find_policy(untuned)[0].name == "model:rltune"
    made = store.add(SITE.model_copy(update={"policy": "model"}), {**network, **PREDICTOR})
    store.promote(made.name, at=0.0)
    tuned = in_force(loaded, 0.0)
    order = tuned.settings.order
    assert (tuned.generation, order.own, order.max_delay_s) == (made.name, 0.3, 86_400.0)
    assert find_policy(tuned)[0].name == "model:small"
    shipped = load_predictor(shipped_predictor()).digest
    assert configured_predictor(tuned.settings).digest == shipped
    rig = build_rig(tuned, demo_backend(0, SystemClock()))
    assert rig.model == made.name
    assert sure(rig.following).turn(0.0) == (made.name, None)
    store.rollback(at=0.0)
    assert sure(rig.following).turn(0.0) == ("", None)


def test_the_state_of_the_last_night_is_kept_and_tells_whether_it_would_help(
    tmp_path: Path,
) -> None:
    assert read_state(tmp_path) == {}
    assert "`rltuned tune` replays" in would_it_help(tmp_path, 0.0)["sentence"]
    week = {"at": 1_000.0, "sentence": "Less.", "verdict": "close", "change": -0.3}
    write_state(None, failed=1)
    write_state(tmp_path, verdict="kept", failed=2, last_week=week)
    assert read_state(tmp_path) == {"verdict": "kept", "failed": 2, "last_week": week}
    found = would_it_help(tmp_path, 1_000.0 + 7_200.0)
    assert found == week | {"sentence": "Less. Replayed 2h00m ago."}
    file = tmp_path / "models" / "tune.json"
    for damaged in ("{", "5", '{"failed": "x"}', '{"last_week": {"at": "x"}}', "[" * 100_000):
        file.write_text(damaged)
        assert read_state(tmp_path) == {}
        assert would_it_help(tmp_path, 0.0)["at"] is None
    file.unlink()
    os.mkfifo(file)
    assert read_state(tmp_path) == {}, "nobody writes into the pipe"
