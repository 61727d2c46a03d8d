"""`rltuned check` on recorded configurations, changed one line at a time."""

import re
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import rltuned
from rltuned.cli import check, check_slurm
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.config_checks import SITE, Check, Status, examine, site_facts
from rltuned.slurm.run import SlurmCli
from tests.recorded import DATA, Recording

PACKAGE = Path(rltuned.__file__).parent
RECORDED = Recording(DATA / "22.05")
CONFIG = RECORDED.text("config")
NOW = float(CONFIG.split("\n", 1)[0].rsplit(" ", 1)[1])
GOOD: dict[str, Any] = {
    "text": CONFIG,
    "now": NOW,
    "uid": 0,
    "user": "root",
    "client": "slurm-wlm 22.05.8",
}


def found(said: dict[str, Any], **other: object) -> dict[str, Check]:
    return {c.name: c for c in examine(site_facts(**{"ping": "UP", **said, **other}))}


def with_line(key: str, value: str) -> dict[str, Any]:
    changed, count = re.subn(rf"(?m)^({re.escape(key)} *)= .*$", rf"\1= {value}", CONFIG)
    if not count:
        changed += f"{key} = {value}\n"
    return {**GOOD, "text": changed}


def test_the_lab_is_fit() -> None:
    assert {c.status for c in found(GOOD).values()} == {Status.OK}
    assert found(GOOD)["version"].detail == "Slurm 22.05.8"


@pytest.mark.parametrize(
    ("key", "value", "name", "status", "remedy"),
    [
        ("PriorityType", "priority/basic", "priority", Status.WARN, "multifactor"),
        ("PriorityType", "priority/ours", "priority", Status.FAIL, "multifactor"),
        ("PriorityFlags", "CALCULATE_RUNNING,INCR_ONLY", "priority", Status.FAIL, "INCR_ONLY"),
        ("PriorityWeightAge", "0", "weights", Status.OK, ""),
        ("PriorityWeightTRES", "CPU=10,GRES/gpu=2000", "weights", Status.OK, ""),
        (
            "SchedulerParameters",
            "bf_continue,bf_min_prio_reserve=9",
            "scheduler",
            Status.WARN,
            "scope",
        ),
        ("PrioritySiteFactorPlugin", "site_factor/x", "site_factor_plugin", Status.WARN, "unset"),
        ("SchedulerType", "sched/builtin", "scheduler", Status.WARN, "sched/backfill"),
        ("SchedulerParameters", "(null)", "scheduler", Status.WARN, "bf_continue"),
        ("SchedulerParameters", "bf_max_job_user=10", "backfill", Status.WARN, "above 10"),
        ("SchedulerParameters", "bf_window=360", "backfill", Status.WARN, "longest time limit"),
        ("DefMemPerCPU", "UNLIMITED", "select", Status.WARN, "DefMemPerCPU"),
        ("SelectTypeParameters", "CR_CORE", "select", Status.OK, ""),
        ("PreemptType", "preempt/qos", "preemption", Status.WARN, "left alone"),
        ("SLURM_VERSION", "99.11.1", "version", Status.WARN, "dry-run"),
        ("SLURM_VERSION", "tomorrow", "version", Status.FAIL, ""),
    ],
)
def test_each_setting(key: str, value: str, name: str, status: Status, remedy: str) -> None:
    check = found(with_line(key, value))[name]
    assert check.status is status
    assert remedy in check.remedy


SITE_FACTS = {*site_facts(**GOOD)}
TABLES = (
    (SITE, SITE_FACTS),
    (
        check.MACHINE + check.DAEMON,
        {*check.PROBES, "loaded", "settings", "folder", "salt_file", "user"},
    ),
    (
        check_slurm.CONTROLLERS + check_slurm.FIT + check_slurm.QUEUE,
        {*check_slurm.PROBES, "loaded", "settings", "backend", "priority"},
    ),
    (check_slurm.REMARKS, {"said"}),
)
"""With the facts that they are asked with."""


@pytest.mark.parametrize(
    "value",
    [
        "bf_max_job_user=11",
        "bf_max_job_user=0",
        "bf_window=361",
        "bf_resolution=600,bf_interval=120",
    ],
)
def test_parameters_of_backfill_that_cost_nothing(value: str) -> None:
    assert "backfill" not in found(with_line("SchedulerParameters", f"bf_continue,{value}"))


def test_a_text_names_facts_alone() -> None:
    for table, facts in TABLES:
        texts = [text for row in table for state in row.states for text in state[2:]]
        names = {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}
        assert {re.split(r"[.[]", name)[0] for name in names} <= {*facts, "found"}


def test_every_check_is_documented() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "install.md").read_text()
    code = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    names = set(re.findall(r'(?:Check|Question)\(\s*"(\w+)"', code))
    assert len(names) > 20
    assert sorted(name for name in names if f"`{name}`" not in page) == []


@pytest.mark.parametrize(
    ("name", "said", "status"),
    [
        ("client", {"client": "slurm 22.05.2"}, "ok"),
        ("client", {"client": "slurm 21.08.8"}, "warn"),
        ("client", {"client": "slurm 23.02.1"}, "fail"),
        ("client", {"client": ""}, "warn"),
        ("clock", {"now": NOW - 1}, "ok"),
        ("clock", {"now": NOW + 10}, "warn"),
        ("clock", {"now": NOW - 3600}, "fail"),
    ],
)
def test_the_release_of_the_commands_and_the_clock(
    name: str, said: dict[str, object], status: str
) -> None:
    assert found(GOOD, **said)[name].status == status


def test_programs() -> None:
    assert found(GOOD, missing=("sacctmgr",))["programs"].status is Status.OK
    accounting = with_line("AccountingStorageType", "accounting_storage/slurmdbd")
    assert found(accounting, missing=("sacctmgr",))["programs"].status is Status.WARN
    none = {**GOOD, "text": "", "trouble": "no scontrol", "missing": ("scontrol", "sacctmgr")}
    (only,) = found(none).values()
    assert (only.status, only.detail) == (Status.FAIL, "not found here: scontrol")
    away = found(none, missing=())
    assert {c.name: c.status for c in away.values()} == {
        "programs": Status.OK,
        "slurm": Status.FAIL,
    }


def test_one_clock_is_not_off_itself() -> None:
    """slurmctld cuts its second, and the answer comes after rltuned's own look at the clock."""
    for later in (0.0, 0.9, -0.2):
        check = found(GOOD, now=NOW + later)["clock"]
        assert check.detail.endswith("and this machine agree within a second")
    assert "is 10 s behind the clock" in found(GOOD, now=NOW + 10.9)["clock"].detail


def test_rights() -> None:
    plain = {**GOOD, "uid": 1000, "user": "rltuned"}
    assert found(plain)["rights"].status is Status.FAIL
    assert "SlurmUser" in found(plain)["rights"].detail
    accounting = with_line("AccountingStorageType", "accounting_storage/slurmdbd")
    operator = {**accounting, "uid": 1000, "user": "rltuned", "level": "Operator"}
    assert found(operator)["rights"].status is Status.OK
    nobody = found(operator, level="None")["rights"]
    assert nobody.status is Status.FAIL
    assert nobody.remedy == "sacctmgr -i modify user rltuned set adminlevel=Operator"
    unknown = found(operator, level="")["rights"]
    assert unknown.remedy == "sacctmgr -i add user rltuned account=root adminlevel=Operator"
    assert "start slurmdbd" in found(operator, level=None)["rights"].remedy
    assert found(accounting, level="None")["rights"].status is Status.WARN


def test_slurm_that_is_away_is_one_clear_line(tmp_path: Path) -> None:
    (only,) = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: NOW).check()
    assert (only.name, only.status) == ("programs", Status.FAIL)
    assert "squeue, sinfo, sprio, scontrol, sdiag" in only.detail
    assert "bin_dir" in only.remedy


def test_a_queue_of_which_we_see_a_part_is_no_queue() -> None:
    assert found(GOOD)["private_data"].status is Status.OK
    private = with_line("PrivateData", "jobs,usage")
    assert found(private)["private_data"].status is Status.OK, "root sees all"
    plain = found(private, uid=1000, user="rltuned")["private_data"]
    assert plain.status is Status.FAIL
    assert "PrivateData=jobs,usage: this user sees only its own jobs" in plain.detail
    operator = {**private, "uid": 1000, "user": "rltuned", "level": "Operator"}
    assert found(operator)["private_data"].status is Status.OK
    usage = with_line("PrivateData", "usage,users")
    assert found(usage, uid=1000)["private_data"].status is Status.OK
