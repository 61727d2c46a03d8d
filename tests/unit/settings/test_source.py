"""Each kind of bad input ends with one line that names file, line and key; keys are explained."""

import os
import tomllib
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs
from rltuned.core.ladder import Ladder, Rung, Switchback
from rltuned.core.select import Scope
from rltuned.errors import SettingsError
from rltuned.settings import Flag, load
from rltuned.settings.keys import Settings
from rltuned.settings.reference import (
    example,
    fields_of,
    header,
    is_repeated,
    tables,
    toml,
)  # fmt: skip
from rltuned.settings.source import check_reload, key_lines, needs_restart
from rltuned.slurm.run import SlurmCli
from tests.configs import settings_file
from tests.programs import rltuned


def test_defaults_are_those_of_the_code_they_steer() -> None:
    settings = Settings()
    assert settings.knobs() == Knobs(Scope(max_writes_per_hour=30), placement="milp")
    assert settings.ladder.ladder() == Ladder(Rung.OBSERVE)
    assert settings.slurm.cli() == SlurmCli()


def test_values_reach_the_code_they_steer(tmp_path: Path) -> None:
    text = """
[scope]
sla_partitions = ["urgent"]
partitions = ["gpu", "long"]
min_age_s = 5
[limits]
write_mode = "site_factor"
max_changes = 7
[order]
own = 1.0
[policy]
placement = "spread"
[slurm]
conf = "/opt/slurm.conf"
"""
    settings = load(settings_file(tmp_path, text)).settings
    knobs = settings.knobs()
    assert knobs.rules.sla_partitions == frozenset({"urgent"})
    assert knobs.rules.partitions == frozenset({"gpu", "long"})
    assert (knobs.writing.mode, knobs.writing.max_changes) == ("site_factor", 7)
    assert knobs.order.own == 1.0
    assert knobs.rules.switchback is None
    assert knobs.placement == "spread"
    assert settings.slurm.cli().conf == Path("/opt/slurm.conf")


def test_a_canary_narrows_the_scope_and_alternates(tmp_path: Path) -> None:
    text = "[ladder]\nstage = 'canary'\ncanary_partitions = ['gpu']\ncanary_block_s = 7200.0\n"
    settings = load(settings_file(tmp_path, text)).settings
    rules = settings.knobs().rules
    assert rules.partitions == frozenset({"gpu"})
    assert rules.switchback == Switchback(block_s=7_200.0, washout_s=1_800.0)
    assert settings.ladder.ladder() == Ladder(Rung.CANARY)
    text = text.replace("canary'", "full'", 1)
    wide = load(settings_file(tmp_path, text)).settings.knobs().rules
    assert (wide.partitions, wide.switchback) == (frozenset(), None)
    share = load(settings_file(tmp_path, text + "full_off_share = 0.1\n")).settings.knobs().rules
    assert share.switchback == Switchback(block_s=7_200.0, washout_s=1_800.0, off_share=0.1)


BAD_VALUES = (
    ("http.enabled", "'no'", "input should be a valid boolean"),
    ("ladder.stage", "'live'", "input should be 'observe',"),
    ("ladder.full_off_share", "0.6", ""),
    ("daemon.interval_s", "'60'", "input should be a valid number"),
    ("daemon.interval_s", "0.5", "input should be greater than or equal to 1 (given: 0.5)"),
    ("daemon.interval_s", "nan", ""),
    ("daemon.interval_s", "true", ""),
    ("load.max_backfill_s", "inf", "input should be a finite"),
    ("limits.write_mode", "'nice'", "input should be 'auto',"),
    ("limits.max_changes", "1.5", ""),
    ("order.own", "-1.0", "input should be greater"),
    ("order.clip", "1.0", "unknown key; known here: max_delay_s"),
    ("http.port", "70000", ""),
    ("http.address", '"\\u0000"', ""),
    ("scope.partitions", "['']", ""),
    ("scope.sla_partitions", '["a,b"]', "must be one name"),
    ("scope.excluded_users", '[" eve"]', "must be one name"),
    ("slurm.conf", '""', "a path cannot be empty"),
    ("slurm.conf", '"etc/slurm"', "must be an absolute path: etc/slurm depends on where"),
    ("slurm.conf", f'"{"/x" * 2100}"', "a path has 4095 characters at most"),
    ("slurm.bin_dir", "5", "must be a path, as text"),
    ("slurm.bin_dir", '"etc/slurm"', "must be an absolute path: etc/slurm depends on where"),
    ("daemon.state_dir", '""', "a path cannot be empty"),
    ("daemon.state_dir", f'"/tmp/{"x" * 256}"', ""),
    ("daemon.state_dir", '"state"', "must be an absolute path"),
    ("daemon.state_dir", '"~/state"', "must be an absolute path"),
    ("daemon.state_dir", '"/var/lib/../tmp"', "must be without .."),
    ("daemon.state_dir", '"/"', "/ cannot be a folder of rltuned's own"),
    ("daemon.state_dir", '"/proc/self"', "/proc/self cannot be a folder of rltuned's own"),
    ("daemon.state_dir", '"/dev/null"', "/dev/null cannot be a folder of rltuned's own"),
    ("daemon.state_dir", '"/dev/null/state"', "/dev/null/state cannot be a folder"),
    ("daemon.pause_file", '"PAUSE"', "must be an absolute path"),
    ("policy.models_dir", '"models"', "must be an absolute path"),
    ("ha.lease_dir", '"../lease"', "must be an absolute path"),
    ("predictor.model", '"../other"', "must be the name of one folder"),
    ("predictor.model", '".."', "must be the name of one folder"),
)
TWO_TABLES = "[ladder]\ncanary_partitions = ['{}']"
BAD_TEXTS = (
    ("[ladder]\n\nstagge = 'full'", "{f}:3: ladder.stagge: unknown key; did you mean stage?"),
    ("[deamon]\ninterval_s = 9", "{f}:1: deamon: unknown table; did you mean daemon?"),
    ("verbose = true", "{f}:1: verbose: unknown key; known here: daemon, ha"),
    ("[sla]\nname = 'a'", "{f}:1: sla: it is a list of tables: write [[sla]]"),
    (
        "[daemon]\ninterval_s = 1000\n[ladder]\nstage = 'canary'",
        "daemon.interval_s: 1000 s is too long for a switchback, at most 900 s",
    ),
    (
        "[scope]\npartitions = ['a']\n" + TWO_TABLES.format("b"),
        "ladder.canary_partitions: b is not in scope.partitions",
    ),
    (
        "[scope]\nsla_partitions = ['a']\n" + TWO_TABLES.format("a"),
        "ladder.canary_partitions: a is not in scope.partitions, or is an SLA partition",
    ),
    ("[scope]\npartitions = ['a']\nsla_partitions = ['a']", "{f}:1: scope: a is both in"),
    ("daemon.interval_s = -1", "{f}:1: daemon.interval_s:"),
    ("daemon = 3", "{f}:1: daemon: must be a table"),
    ("daemon = { interval_s = 0 }", "{f}:1: daemon.interval_s:"),
    ("[scope\n", "{f}:1: not valid TOML"),
    ("[log]\nformat = 'json'\nformat = 'json'", "{f}:3: not valid TOML"),
    ("a = " + "[" * 5000 + "]" * 5000 + "\n", "not valid TOML"),
    ("a = " + "9" * 5000 + "\n", "not valid TOML"),
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(
            ("[{}]\n{} = {}\n".format(*key.split("."), value), f"{{f}}:2: {key}: {says}")
            for key, value, says in BAD_VALUES
        ),
        *BAD_TEXTS,
    ],
)
def test_a_bad_value_is_named_by_file_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = settings_file(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert says.format(f=path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("key", ["daemon.state_dir", "ha.lease_dir"])
def test_a_file_where_a_folder_belongs_is_refused_with_its_line(tmp_path: Path, key: str) -> None:
    file = settings_file(tmp_path, '[{}]\n{} = "/etc/passwd"\n'.format(*key.split(".")))
    done = rltuned("config", "check", file, code=2)
    assert f"rltuned.toml:2: {key}: /etc/passwd is not a folder" in done.stderr


def test_of_a_long_value_an_error_shows_the_beginning(tmp_path: Path) -> None:
    path = settings_file(tmp_path, f"[daemon]\ninterval_s = {'9' * 4_000}\n")
    with pytest.raises(SettingsError, match=r"interval_s: .*\(given: 9{80}\.\.\.\)$"):
        load(path)


def test_every_error_has_its_own_line(tmp_path: Path) -> None:
    path = settings_file(tmp_path, "[http]\nport = -1\nadress = ''\n")
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert str(caught.value).count("\n") == 1


def test_a_key_in_a_multi_line_text_is_no_key(tmp_path: Path) -> None:
    text = '[policy]\nname = """\n[http]\nport = 3\n"""\n[http]\nport = "x"\n'
    assert dict(key_lines(text))["http.port"] == 7
    with pytest.raises(SettingsError, match=r":7: http.port"):
        load(settings_file(tmp_path, text))


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize(
    ("owner", "group", "mode", "says"),
    [
        (-1, -1, 0o606, r"others may write to it.*chmod go-w"),
        (-1, -1, 0o646, r"others may write to it.*chmod go-w"),
        pytest.param(-1, 12_345, 0o664, "others may write to it", marks=ROOT_ONLY),
        pytest.param(12_345, 0, 0o644, "belongs to uid 12345", marks=ROOT_ONLY),
    ],
)
def test_a_file_that_somebody_else_may_change_is_refused(
    tmp_path: Path, owner: int, group: int, mode: int, says: str
) -> None:
    path = settings_file(tmp_path)
    os.chown(path, owner, group)
    path.chmod(mode)
    with pytest.raises(SettingsError, match=says):
        load(path)


def test_a_folder_in_which_anybody_can_exchange_the_file_is_refused(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(SettingsError, match=rf"{tmp_path}: others may write to it"):
        load(path)
    tmp_path.chmod(0o1777)
    assert load(path).path == path


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot be read: No such file"):
        load(tmp_path / "missing.toml")
    with pytest.raises(SettingsError, match=r"cannot be read: Is a directory"):
        load(tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b"[log]\n# caf\xe9\n")
    with pytest.raises(SettingsError, match=r"latin.toml:2: is not UTF-8"):
        load(path)


def test_flags_win_and_sources_are_reported(tmp_path: Path) -> None:
    path = settings_file(tmp_path, "[daemon]\ninterval_s = 30\n[ladder]\nstage = 'shadow'\n")
    loaded = load(path, (Flag("ladder.stage", "full", "--live"),))
    assert loaded.settings.ladder.stage == "full"
    assert loaded.settings.daemon.interval_s == 30
    assert loaded.origin("ladder.stage") == "--live"
    assert loaded.origin("daemon.interval_s") == f"{path}:2"
    assert loaded.origin("http.port") == "default"
    with pytest.raises(SettingsError, match=r"^--interval: daemon.interval_s:"):
        load(path, (Flag("daemon.interval_s", -1.0, "--interval"),))


def test_neither_a_named_pipe_nor_an_endless_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(SettingsError, match="not a plain file"):
            load(path)


@pytest.mark.parametrize(
    ("left", "gone"),
    [
        ("", r"\[ladder\], \[scope\], \[\[sla\]\]"),
        ('[ladder]\nstage = "full"\n[scope]\nmin_age_s = 0\n', r"\[\[sla\]\]"),
        ('sla = []\n[ladder]\nstage = "full"\n', r"\[scope\]"),
    ],
)
def test_a_reload_takes_no_table_away(tmp_path: Path, left: str, gone: str) -> None:
    """In review SIGHUP with an emptied file put the defaults in force."""
    path = settings_file(
        tmp_path, '[ladder]\nstage = "full"\n[scope]\nmin_age_s = 0\n[[sla]]\nqos = "x"\n'
    )
    before = load(path)
    path.write_text(left)
    with pytest.raises(SettingsError, match=f"{gone} of the settings in force is gone"):
        check_reload(before, load(path))
    path.write_text("sla = []\n[ladder]\n[scope]\n[limits]\n")
    check_reload(before, load(path))


def test_the_example_holds_every_key_and_only_defaults(tmp_path: Path) -> None:
    path = settings_file(tmp_path, example())
    assert load(path).settings == Settings()
    tree = tomllib.loads(example())
    for name, _, model in tables():
        if is_repeated(name):
            assert all(f"\n# {key} = " in example() for key in model.model_fields)
            assert f"\n# {header(name)}\n" in example()
            continue
        absent = {k for k, f in model.model_fields.items() if f.default is None}
        assert set(tree[name]) == set(model.model_fields) - absent
        for key in absent:
            assert f"\n# {key} =\n" in example()


def test_every_key_is_explained() -> None:
    for name, about, model in tables():
        assert about.endswith("."), name
        for key, field in fields_of(model).items():
            assert field.description, f"{name}.{key}"
            assert len(field.description) > 15, f"{name}.{key}"


def test_values_as_toml() -> None:
    assert toml(["a", 'b"']) == '["a", "b\\""]'
    with pytest.raises(TypeError):
        toml({})


def test_only_what_is_read_at_start_is_named() -> None:
    start = Settings.model_validate({})
    assert needs_restart(start, Settings.model_validate({})) == []
    changed = {
        "http": {"jobs": True},
        "log": {"format": "json"},
        "predictor": {"enabled": False},
        "policy": {"name": "sjf"},
    }
    assert needs_restart(start, Settings.model_validate(changed)) == [
        "http.jobs",
        "log.format",
        "predictor.enabled",
    ]
