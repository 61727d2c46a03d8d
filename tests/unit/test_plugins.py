"""Policies of other packages: found, loaded, run, and what their faults cost."""

import signal
from pathlib import Path

import numpy as np
import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import encode
from rltuned.core.order import DEFAULT, Order, bounded
from rltuned.daemon.systemd import SignalFlags, listening
from rltuned.daemon.wiring import find_policy
from rltuned.errors import ModelError, PolicyError, SettingsError
from rltuned.policies.baselines import BASELINES
from rltuned.policies.plugins import Plugin, load_plugin
from rltuned.settings import load
from tests.builders import job, node, snapshot
from tests.configs import settings_file
from tests.packages import install
from tests.programs import process

HOUR = 3_600.0
SEEN = snapshot(
    job(1, gpus=4, time_limit_s=HOUR), job(2, gpus=1, time_limit_s=2 * HOUR), nodes=[node("p1")]
)


@pytest.mark.parametrize("name", ["limits", "listed"])
def test_a_package_s_function_is_a_policy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "def limits(matrix):\n    return matrix.limit_s\n"
        "def listed(matrix):\n    return [3600.0, 7200.0]"
    )
    install(tmp_path, monkeypatch, code, "limits", "listed")
    policy = load_plugin(f"plugin:{name}")
    matrix = encode(SEEN.pending, SEEN)
    assert bounded(policy, matrix, Order(own=1.0, share=0.0)).delay_s.tolist() == [HOUR, 2 * HOUR]
    assert policy.score(matrix).tolist() == [-HOUR, -2 * HOUR]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('no\\nweights')", "policy plugin:ours: RuntimeError: no weights"),
        ("return 1 / 0", "ZeroDivisionError"),
        ("return ['soon', 'later']", "ValueError: could not convert"),
        ("return matrix.limit_s[:1]", r"own_s of shape \(1,\) for 2 jobs"),
        ("return matrix.limit_s * np.nan", "gave job 1 no finite own_s from 0 on"),
        ("return -matrix.limit_s", "gave job 1 no finite own_s from 0 on"),
        ("matrix.limit_s[:] = 1e9\n    return matrix.limit_s", "read-only"),
        ("matrix.slack_s *= 0\n    return matrix.limit_s", "read-only"),
        ("import sys\n    sys.exit(3)", "policy plugin:ours: SystemExit: 3"),
        ("raise GeneratorExit", "policy plugin:ours: GeneratorExit"),
        ("import asyncio\n    raise asyncio.CancelledError", "CancelledError"),
        ("raise BaseException('of its own')", "BaseException: of its own"),
        ("return matrix.limit_s * 1j", "TypeError: complex numbers"),
    ],
)
def test_what_it_does_wrong_is_a_policy_error(
    body: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, f"def ours(matrix):\n    {body}", "ours")
    policy, matrix = load_plugin("plugin:ours"), encode(SEEN.pending, SEEN)
    before = matrix.limit_s.copy()
    with pytest.raises(PolicyError, match=why):
        decide(SEEN, policy, Knobs())
    with pytest.raises(PolicyError, match=why):
        bounded(policy, matrix, DEFAULT)
    assert np.array_equal(matrix.limit_s, before)


def test_ctrl_c_ends_a_command_but_not_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon has a handler of its own, so what looks like Ctrl-C there is the package's."""
    install(tmp_path, monkeypatch, "def ours(matrix):\n    raise KeyboardInterrupt", "ours")
    policy = load_plugin("plugin:ours")
    at_first = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            decide(SEEN, policy, Knobs())
    finally:
        signal.signal(signal.SIGINT, at_first)
    with (
        listening(SignalFlags(), lambda _stop: None),
        pytest.raises(PolicyError, match="KeyboardInterrupt"),
    ):
        decide(SEEN, policy, Knobs())


def test_what_it_does_to_its_copy_moves_no_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "for part in (matrix.length_s, matrix.size, matrix.backlog_s, matrix.pools.gpus):\n"
        "        part.flags.writeable = True\n"
        "        part[:] = 1e12\n"
        "    return matrix.length_s, matrix.length_s"
    )
    install(tmp_path, monkeypatch, f"def ours(matrix):\n    {body}", "ours")
    matrix = encode(SEEN.pending, SEEN)
    honest = bounded(BASELINES["delay"], matrix, DEFAULT)
    assert bounded(load_plugin("plugin:ours"), matrix, DEFAULT).upper_s.tolist() == (
        honest.upper_s.tolist()
    )
    assert float(matrix.size.max()) == 4.0


def test_one_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="plugin:ours: no installed package offers a policy"):
        load_plugin("plugin:ours")
    module = install(tmp_path, monkeypatch, "def ours(matrix):\n    return 0", "ours", "gone")
    with pytest.raises(ModelError, match=r"plugin:gone \(ours_policies:gone\): AttributeError"):
        load_plugin("plugin:gone")
    with pytest.raises(ModelError, match="there are: plugin:gone, plugin:ours"):
        load_plugin("plugin:other")
    module.chmod(0o666)
    with pytest.raises(ModelError, match="others may write to it"):
        load_plugin("plugin:ours")
    second = tmp_path / "second"
    install(second, monkeypatch, "ours = None", "ours", package="theirs")
    with pytest.raises(ModelError, match=r"several packages offer it: ours 1\.0, theirs 1\.0"):
        load_plugin("plugin:ours")


def test_the_settings_name_it_and_its_digest_is_that_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings_file(tmp_path, '[policy]\nname = "plugin:ours"\n')
    with pytest.raises(SettingsError, match=r":2: policy\.name: no policy 'plugin:ours'"):
        find_policy(load(config))
    module = install(tmp_path, monkeypatch, "def ours(matrix):\n    return 0", "ours")
    policy = find_policy(load(config))[0]
    assert isinstance(policy, Plugin)
    assert policy.name == "plugin:ours"
    install(
        tmp_path / "new", monkeypatch, "def other(matrix):\n    return 1", "other", package="other"
    )
    assert len(policy.digest) == len(load_plugin("plugin:other").digest) == 64
    assert load_plugin("plugin:other").digest != policy.digest
    assert getattr(find_policy(load(config))[0], "digest", "") == policy.digest
    module.write_text(module.read_text() + "\n# changed\n")
    with pytest.raises(ModelError, match="has changed since it was loaded; restart rltuned"):
        find_policy(load(config))


def test_the_daemon_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "def ours(matrix):\n    return matrix.limit_s", "ours")
    config = settings_file(
        tmp_path, f'[daemon]\nstate_dir = "{tmp_path}"\n[policy]\nname = "plugin:ours"\n'
    )
    words = ("plan", "--backend", "sim", "--config", str(config), "--json")
    done = process(
        *words,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        code=0,
    )
    assert '"policy": "plugin:ours"' in done.stdout
