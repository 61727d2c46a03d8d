"""Each kind of bad input ends with one line that names file, line and key."""

import os
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs
from rltuned.core.ladder import Ladder, Rung, Switchback
from rltuned.core.select import Scope
from rltuned.errors import SettingsError
from rltuned.settings import Flag, load
from rltuned.settings.keys import Settings
from rltuned.settings.source import check_reload, key_lines
from rltuned.slurm.run import SlurmCli
from rltuned.slurm.site import Bounds
from tests.configs import settings_file
from tests.programs import rltuned


def test_an_empty_file_means_defaults(tmp_path: Path) -> None:
    settings = load(settings_file(tmp_path)).settings
    assert settings == Settings()
    assert settings.ladder.stage == "observe"
    assert settings.http.address == "127.0.0.1"


def test_defaults_are_those_of_the_code_they_steer() -> None:
    settings = Settings()
    assert settings.knobs() == Knobs(
        Scope(max_writes_per_hour=30),
        placement="milp",
    )
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[ladder]\n\nstagge = 'full'",
            "{f}:3: ladder.stagge: unknown key; did you mean stage?",
        ),
        ("[deamon]\ninterval_s = 9", "{f}:1: deamon: unknown table; did you mean daemon?"),
        ("verbose = true", "{f}:1: verbose: unknown key; known here: daemon, ha"),
        ("[http]\nenabled = 'no'", "{f}:2: http.enabled: input should be a valid boolean"),
        ("[sla]\nname = 'a'", "{f}:1: sla: it is a list of tables: write [[sla]]"),
        ("[ladder]\nstage = 'live'", "{f}:2: ladder.stage: input should be 'observe',"),
        ("[ladder]\nfull_off_share = 0.6", "{f}:2: ladder.full_off_share:"),
        (
            "[daemon]\ninterval_s = 1000\n[ladder]\nstage = 'canary'",
            "daemon.interval_s: 1000 s is too long for a switchback, at most 900 s",
        ),
        (
            "[scope]\npartitions = ['a']\n[ladder]\ncanary_partitions = ['b']",
            "ladder.canary_partitions: b is not in scope.partitions",
        ),
        (
            "[scope]\nsla_partitions = ['a']\n[ladder]\ncanary_partitions = ['a']",
            "ladder.canary_partitions: a is not in scope.partitions, or is an SLA partition",
        ),
        ("[daemon]\ninterval_s = '60'", "{f}:2: daemon.interval_s: input should be a valid number"),
        ("[daemon]\ninterval_s = 0.5", "greater than or equal to 1 (given: 0.5)"),
        ("[daemon]\ninterval_s = nan", "{f}:2: daemon.interval_s:"),
        ("[daemon]\ninterval_s = true", "{f}:2: daemon.interval_s:"),
        ("[load]\nmax_backfill_s = inf", "{f}:2: load.max_backfill_s: input should be a finite"),
        ("daemon.interval_s = -1", "{f}:1: daemon.interval_s:"),
        ("daemon = 3", "{f}:1: daemon:"),
        ("daemon = { interval_s = 0 }", "{f}:1: daemon.interval_s:"),
        (
            "[limits]\nwrite_mode = 'nice'",
            "{f}:2: limits.write_mode: input should be 'auto',",
        ),
        ("[order]\nown = -1.0", "{f}:2: order.own: input should be greater"),
        ("[order]\nclip = 1.0", "{f}:2: order.clip: unknown key; known here: max_delay_s"),
        ("[limits]\nmax_changes = 1.5", "{f}:2: limits.max_changes:"),
        ("[http]\nport = 70000", "{f}:2: http.port:"),
        ("[scope]\npartitions = ['']", "{f}:2: scope.partitions:"),
        ("[scope]\npartitions = ['a']\nsla_partitions = ['a']", "{f}:1: scope: a is both in"),
        ("[scope\n", "{f}:1: not valid TOML"),
        ("[log]\nformat = 'json'\nformat = 'json'", "{f}:3: not valid TOML"),
    ],
)
def test_bad_values(tmp_path: Path, text: str, says: str) -> None:
    path = settings_file(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert says.format(f=path) in str(caught.value)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[scope]\nsla_partitions = ["a,b"]\n', ":2: scope.sla_partitions: must be one name"),
        ('[scope]\nexcluded_users = [" eve"]\n', ":2: scope.excluded_users: must be one name"),
        ('[slurm]\nconf = ""\n', ":2: slurm.conf: a path cannot be empty"),
        ('[daemon]\nstate_dir = ""\n', ":2: daemon.state_dir: a path cannot be empty"),
        (f'[daemon]\nstate_dir = "/tmp/{"x" * 256}"\n', "255 in a name"),
        (f'[slurm]\nconf = "{"/x" * 2100}"\n', "a path has 4095 characters at most"),
        ('[http]\naddress = "\\u0000"\n', ":2: http.address: "),
        ("[slurm]\nbin_dir = 5\n", ":2: slurm.bin_dir: must be a path, as text"),
        ("daemon = 5\n", ":1: daemon: must be a table"),
        ("a = " + "[" * 5000 + "]" * 5000 + "\n", "not valid TOML"),
        ("a = " + "9" * 5000 + "\n", "not valid TOML"),
    ],
)
def test_values_that_look_right_and_are_not(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as reply:
        load(settings_file(tmp_path, text))
    assert len(str(reply.value).splitlines()) == 1


def test_neither_a_named_pipe_nor_an_endless_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(SettingsError, match="not a plain file"):
            load(path)


def test_bounds_of_the_load_reach_the_code_they_steer(tmp_path: Path) -> None:
    settings = load(settings_file(tmp_path, "[load]\nmax_server_threads = 7")).settings
    assert settings.load.bounds() == Bounds(server_threads=7)
    assert Settings().load.bounds() == Bounds()


@pytest.mark.parametrize("name", ["conf", "bin_dir"])
def test_a_path_for_slurms_commands_is_absolute(tmp_path: Path, name: str) -> None:
    file = settings_file(tmp_path, f'[slurm]\n{name} = "etc/slurm"\n')
    says = rf"rltuned.toml:2: slurm.{name}: must be an absolute path: etc/slurm depends on where"
    with pytest.raises(SettingsError, match=says):
        load(file)
    assert load(settings_file(tmp_path, f'[slurm]\n{name} = "/etc/slurm"\n')).path == file


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("daemon.state_dir", "state", "must be an absolute path"),
        ("daemon.state_dir", "~/state", "must be an absolute path"),
        ("daemon.state_dir", "/var/lib/../tmp", "must be without .."),
        ("daemon.state_dir", "/", "/ cannot be a folder of rltuned's own"),
        ("daemon.state_dir", "/proc/self", "/proc/self cannot be a folder of rltuned's own"),
        ("daemon.state_dir", "/dev/null", "/dev/null cannot be a folder of rltuned's own"),
        ("daemon.state_dir", "/dev/null/state", "/dev/null/state cannot be a folder"),
        ("daemon.state_dir", "/etc/passwd", "/etc/passwd is not a folder"),
        ("daemon.pause_file", "PAUSE", "must be an absolute path"),
        ("policy.models_dir", "models", "must be an absolute path"),
        ("ha.lease_dir", "../lease", "must be an absolute path"),
        ("ha.lease_dir", "/etc/passwd", "/etc/passwd is not a folder"),
        ("predictor.model", "../other", "must be the name of one folder"),
        ("predictor.model", "..", "must be the name of one folder"),
    ],
)
def test_an_odd_path_is_refused_with_its_line(
    tmp_path: Path, key: str, value: str, says: str
) -> None:
    table, name = key.split(".")
    file = settings_file(tmp_path, f'[{table}]\n{name} = "{value}"\n')
    done = rltuned("config", "check", file, code=2)
    assert f"rltuned.toml:2: {key}: {says}" in done.stderr


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
