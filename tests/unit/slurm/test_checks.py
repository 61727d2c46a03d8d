"""`rltuned check` on a recorded configuration, changed one line at a time."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import rltuned
from rltuned.cli import check, check_slurm
from rltuned.cli.check_slurm import ORDER, PROBES, QUEUE, REMARKS, SITE, facts_of, worth
from rltuned.cli.facts import Check, Question, Status, answers
from rltuned.core.numbers import Shortage
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PrioritySystem
from rltuned.errors import BackendError
from rltuned.settings import Loaded, Settings
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.run import SlurmCli
from rltuned.slurm.site import parse_config, rate_limit, release_of, weights_of
from tests.builders import job
from tests.configs import settings_file
from tests.recorded import DATA, Recording, replay

PACKAGE = Path(rltuned.__file__).parent
CONFIG = parse_config(Recording(DATA / "22.05").text("config"))
DBD = {"AccountingStorageType": "accounting_storage/slurmdbd"}
GOOD: dict[str, Any] = {
    "config": CONFIG, "off_s": 0.0, "uid": 0, "user": "root", "client": "22.05.8", "missing": [],
    "controllers": {"head1": True}, "level": None,
    "reading": ReaderChoice("text", "text", "as text"),
}  # fmt: skip


def found(table: Iterable[Question], lines: dict[str, str], **facts: object) -> dict[str, Check]:
    known = {**GOOD, "config": {**CONFIG, **lines}, **facts}
    return {c.name: c for c in answers(table, facts_of(Loaded(Settings()), None, **known))}


def test_the_lab_is_fit() -> None:
    assert {c.status for c in found(SITE, {}).values()} == {Status.OK}


@pytest.mark.parametrize(
    ("lines", "facts", "name", "status", "words"),
    [
        ({"PriorityType": "priority/basic"}, {}, "priority", "warn", "multifactor"),
        ({"PriorityType": "priority/ours"}, {}, "priority", "fail", "multifactor"),
        ({"PriorityFlags": "CALCULATE_RUNNING,INCR_ONLY"}, {}, "priority", "fail", "INCR_ONLY"),
        ({"PriorityWeightTRES": "GRES/gpu=2000"}, {}, "weights", "ok", "TRES GRES/gpu=2000"),
        ({"SchedulerParameters": "bf_continue,bf_min_prio_reserve=9"}, {}, "scheduler", "warn",
         "scope"),
        ({"PrioritySiteFactorPlugin": "site_factor/x"}, {}, "site_factor_plugin", "warn", "unset"),
        ({"SchedulerType": "sched/builtin"}, {}, "scheduler", "warn", "sched/backfill"),
        ({"SchedulerParameters": ""}, {}, "scheduler", "warn", "bf_continue"),
        ({"SchedulerParameters": "bf_max_job_user=10"}, {}, "backfill", "warn", "above 10"),
        ({"SchedulerParameters": "bf_window=360"}, {}, "backfill", "warn", "longest time limit"),
        ({"DefMemPerCPU": "UNLIMITED"}, {}, "select", "warn", "DefMemPerCPU"),
        ({"SelectTypeParameters": "CR_CORE"}, {}, "select", "ok", ""),
        ({"PreemptType": "preempt/qos"}, {}, "preemption", "warn", "left alone"),
        ({"SLURM_VERSION": "99.11.1"}, {}, "version", "warn", "dry-run"),
        ({"SLURM_VERSION": "tomorrow"}, {}, "version", "fail", ""),
        ({}, {"client": "22.05.2"}, "client", "ok", ""),
        ({}, {"client": "21.08.8"}, "client", "warn", "slurmctld's release"),
        ({}, {"client": "23.02.1"}, "client", "fail", "slurmctld's release"),
        ({}, {"client": ""}, "client", "warn", "compare"),
        ({}, {"off_s": None}, "clock", "warn", "by hand"),
        ({}, {"off_s": -2.0}, "clock", "ok", ""),
        ({}, {"off_s": 9.0}, "clock", "warn", "9 s ahead of"),
        ({}, {"off_s": -31.0}, "clock", "fail", "31 s behind"),
        ({}, {"missing": ["sacctmgr"]}, "programs", "ok", ""),
        (DBD, {"missing": ["sacctmgr"]}, "programs", "warn", "rights are not known"),
        ({}, {"missing": ["scontrol", "sacctmgr"]}, "programs", "fail", "found here: scontrol"),
        ({}, {"config": BackendError("away")}, "slurm", "fail", "away"),
        ({}, {"controllers": BackendError("none answers")}, "slurm", "fail", "none answers"),
        ({}, {"uid": 9, "user": "me"}, "rights", "fail", "only root and SlurmUser"),
        (DBD, {"uid": 9, "level": "Operator"}, "rights", "ok", ""),
        (DBD, {"uid": 9, "user": "me", "level": "None"}, "rights", "fail",
         "sacctmgr -i modify user me set adminlevel=Operator"),
        (DBD, {"uid": 9, "user": "me", "level": ""}, "rights", "fail",
         "sacctmgr -i add user me account=root adminlevel=Operator"),
        (DBD, {"uid": 9}, "rights", "fail", "start slurmdbd"),
        (DBD, {"level": "None"}, "rights", "warn", "an account of its own"),
        ({"PrivateData": "jobs,usage"}, {}, "private_data", "ok", ""),
        ({"PrivateData": "jobs,usage"}, {"uid": 9}, "private_data", "fail", "Operator"),
        (DBD | {"PrivateData": "jobs"}, {"uid": 9, "level": "Operator"}, "private_data", "ok", ""),
        ({"PrivateData": "usage,users"}, {"uid": 9}, "private_data", "ok", ""),
    ],
)  # fmt: skip
def test_each_answer(
    lines: dict[str, str], facts: dict[str, Any], name: str, status: str, words: str
) -> None:
    with_errors = [row for row in SITE if row.name == name]  # what could not be asked ends it
    one = found(with_errors, lines, **facts)[name]
    assert one.status == status
    assert words in f"{one.detail} {one.remedy}"


LIMITED = {"SLURM_VERSION": "24.11.5", "SlurmctldParameters": "rl_enable,rl_bucket_size=30"}


@pytest.mark.parametrize(
    ("lines", "facts", "name", "status", "words"),
    [
        ({"PriorityType": "priority/basic"}, {"mode": "site_factor"}, "write_mode", "fail",
         "or write_mode = auto"),
        (LIMITED, {}, "rate_limit", "warn", "raise rl_bucket_size"),
        (LIMITED, {"most": 30}, "rate_limit", "ok", "30 updates at once, 2 a second"),
    ],
)  # fmt: skip
def test_settings_beside_the_site(
    lines: dict[str, str], facts: dict[str, Any], name: str, status: str, words: str
) -> None:
    one = found([row for row in QUEUE if row.name == name], lines, **facts)[name]
    assert one.status == status
    assert words in f"{one.detail} {one.remedy}"


@pytest.mark.parametrize("value", ["bf_max_job_user=11", "bf_max_job_user=0", "bf_window=361"])
def test_parameters_of_backfill_that_cost_nothing(value: str) -> None:
    assert "backfill" not in found(SITE, {"SchedulerParameters": f"bf_continue,{value}"})


def test_a_text_names_facts_alone_and_every_check_is_documented() -> None:
    here = {*check.PROBES, "loaded", "settings"}
    tables: tuple[tuple[tuple[Question, ...], set[str]], ...] = (
        (check.MACHINE + check.DAEMON, here),
        (SITE + QUEUE + ORDER + REMARKS, {*PROBES, *CONFIG, "settings"}),
    )
    page = (PACKAGE.parent / "docs" / "install.md").read_text()
    for table, facts in tables:
        assert [row.name for row in table if f"`{row.name}`" not in page] == []
        texts = [text for row in table for state in row.states for text in state[2:]]
        names = {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}
        assert {re.split(r"[.[]", name)[0] for name in names} <= {*facts, "found"}


def test_slurm_that_is_away_is_one_clear_line(tmp_path: Path) -> None:
    path = settings_file(tmp_path, f'[slurm]\nbin_dir = "{tmp_path}"\n')
    (only,) = check_slurm.slurm_checks(rltuned.settings.load(path))
    assert (only.name, only.status) == ("programs", Status.FAIL)
    assert "squeue, sinfo, sprio, scontrol, sdiag" in only.detail


def test_the_clock_is_that_of_the_configuration(tmp_path: Path) -> None:
    recorded = Recording(DATA / "22.05")
    late = re.sub(r"\d+\n", "1700000000\n", recorded.text("config"), count=1)
    facts = facts_of(Loaded(Settings()), replay(tmp_path, recorded, config=late))
    (one,) = answers([row for row in SITE if row.name == "clock"], facts)
    assert (one.status, "behind the clock here" in one.detail) == (Status.FAIL, True)


def test_the_priorities_of_qos_as_sacctmgr_has_them(tmp_path: Path) -> None:
    (tmp_path / "sacctmgr").write_text("#!/bin/sh\nprintf 'normal|0\\nlong|100\\nodd\\n|7\\n'\n")
    (tmp_path / "sacctmgr").chmod(0o755)
    assert SlurmBackend(SlurmCli(tmp_path), lambda: 0.0).qos() == {"normal": 0, "long": 100}


def test_releases_weights_that_count_and_limits_of_requests() -> None:
    assert release_of("25.11.2") == release_of("25.11") == (25, 11)
    assert [release_of(text) for text in ("", "25", "x.y", "25.x")] == [None] * 4
    config = {"PriorityWeightAge": "9", "PriorityWeightFairShare": "5", "PriorityWeightQOS": "7"}
    assert weights_of(config | {"PriorityWeightTRES": "0"}) == {"QOS": "7"}
    assert [*weights_of(config | DBD)] == ["Age", "FairShare", "QOS"]
    limited = {"SLURM_VERSION": "24.11.5", "SlurmctldParameters": "x,rl_enable,rl_bucket_size=50"}
    assert rate_limit(limited) == (50, 2)
    assert rate_limit(limited | {"SlurmctldParameters": "rl_enable"}) == (30, 2)
    assert rate_limit(limited | {"SlurmctldParameters": "rl_bucket_size=50"}) is None
    assert rate_limit(limited | {"SLURM_VERSION": "22.05.8"}) is None


# -- the controllers and the queue --------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "name", "status", "detail"),
    [
        ({}, "ha", "ok", "one slurmctld, on head1"),
        ({}, "load", "ok", "1 server threads, backfill cycle 0.01 s"),
        ({"settings": "[load]\nmax_backfill_s = 0.008"}, "load", "warn",
         "of its bound: backfill_cycle 65%"),
        ({"sdiag": "Terminated\n"}, "load", "warn", "sdiag"),
        ({"sinfo": "garbled"}, "queue", "fail", "sinfo"),
        ({"settings": '[scope]\nsla_partitions = ["sla", "slaa"]'}, "scope", "warn", "slaa"),
        ({}, "time_limits", "ok", ""),
    ],
)  # fmt: skip
def test_the_queue(
    tmp_path: Path, changed: dict[str, str], name: str, status: str, detail: str
) -> None:
    loaded = rltuned.settings.load(settings_file(tmp_path, changed.pop("settings", "")))
    (tmp_path / "bin").mkdir()
    ping = {"ping": "Slurmctld(primary) at head1 is UP\n", **changed}
    facts = facts_of(loaded, replay(tmp_path / "bin", Recording(DATA / "24.11"), **ping))
    one = {c.name: c for c in answers(QUEUE, facts)}[name]
    assert one.status == status
    assert detail in one.detail


# -- what weights are worth, and what delays can cross -------------------------------------------

DAY = 86_400.0
WEIGHTS = {"Age": "10080", "QOS": "20000", "FairShare": "10080", "Partition": "40000"}
AGED = PrioritySystem("multifactor", ages=True, age_weight=10_080, max_age_s=14 * DAY)
"""30 points an hour."""
UNAGED = replace(AGED, ages=False)
ORDERED: dict[str, Any] = {
    "system": AGED, "weights": WEIGHTS, "delay_s": 7 * DAY, "qos": {}, "shares": (), "pending": (),
    "short": (Shortage(), 0), "mode": "auto", "flags": [], "scheduler": {}, "plugin": "",
}  # fmt: skip


def parted(*factors: int) -> dict[str, Partition]:
    return {f"p{n}": Partition(f"p{n}", priority_factor=n) for n in factors}


def order(**facts: object) -> list[Check]:
    """What is not in order."""
    known = {**GOOD, **ORDERED, "partitions": parted(1, 2), **facts}
    found = answers(ORDER, facts_of(Loaded(Settings()), None, **known))
    return [one for one in found if one.status is not Status.OK]


def waiting(*qos: str) -> tuple[PendingJob, ...]:
    return tuple(job(n, qos=name) for n, name in enumerate(qos, 1))


LEVELS = {"normal": 0, "long": 100, "high": 1000}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"system": PrioritySystem()},  # basic without exclusions
        {"system": replace(AGED, age_weight=2_016)},  # a point is worth ten minutes
        {"partitions": parted(1, 2, 20), "flags": ["NO_NORMAL_PART"]},
        {"qos": {"normal": 0}},
        {"qos": LEVELS, "pending": waiting("normal", "high")},
        {"plugin": "site_factor/ours", "mode": "priority"},
        {"scheduler": {"default_queue_depth": "1"}, "pending": waiting("a", "b")},
        {"weights": WEIGHTS | {"Partition": "0"}, "partitions": parted(1),
         "qos": {"normal": 5, "high": 10}},
    ],
)  # fmt: skip
def test_what_is_in_order(facts: dict[str, Any]) -> None:
    assert order(**facts) == []


@pytest.mark.parametrize(
    ("facts", "detail", "remedy"),
    [
        ({"system": replace(AGED, age_weight=0)}, "worth no points", "Age to 2016 or more"),
        ({"system": replace(AGED, age_weight=100)}, "worth 202 minutes", "by 21 or more"),
        ({"system": replace(AGED, age_weight=2_015)}, "a point is worth", "by 2 or more"),
        ({"delay_s": 7.5 * DAY}, "age stops growing after 336 h", "max_delay_s"),
        ({"partitions": parted(9, 10)}, "Partition p9 and p10 lie 4000 points = 133 h",
         "PriorityWeightPartition above 50400"),
        ({"weights": {"QOS": "5000", "Partition": "11000"}}, "at most 5000 points = 167 h",
         "PriorityWeightQOS above 5040"),
        # 100 of 1000, the largest of all, are a tenth of the weight
        ({"qos": LEVELS}, "QOS normal and long lie 2000 points = 66.7 h", "QOS above 50400"),
        ({"pending": waiting(*["a"] * 501)}, "501 jobs wait", "raise bf_max_job_test"),
        ({"scheduler": {"bf_max_job_test": "1"}, "pending": waiting("a", "b")}, "2 jobs wait", ""),
        ({"system": UNAGED, "mode": "priority"}, "only with slurmdbd", "write_mode = auto"),
        ({"system": PrioritySystem(), "leaves_alone": True}, "stands behind every",
         "multifactor"),
        ({"plugin": "site_factor/ours"}, "no delay is written", "write_mode = priority"),
        ({"short": (Shortage(2, 0.0, 66), 3)}, "2 of 3 pending jobs", "jobs 66 points more: raise"),
        *(({"weights": WEIGHTS | {"Partition": weight}, "partitions": parted(*factors),
            "qos": qos}, "a new job as few as", f"PriorityWeightPartition={enough} ")
          for weight, factors, qos, enough in (
              ("10080", (1, 2), {}, 10082), ("0", (1,), {}, 5041), ("0", (0, 1), {}, 5041),
              ("0", (1,), {"normal": 0, "high": 10}, 5041))),
        # in review the line for slurm.conf was beyond 32 bits where factors lie far apart
        ({"weights": WEIGHTS | {"Partition": "10"}, "partitions": parted(1, 60_000),
          "delay_s": 700 * DAY, "system": replace(AGED, max_age_s=1400 * DAY,
          age_weight=1_008_000)}, "a new job as few as", "bring all PriorityJobFactor nearer"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_what_to_do(facts: dict[str, Any], detail: str, remedy: str) -> None:
    found = [one for one in order(**facts) if detail in one.detail]
    assert [remedy in one.remedy for one in found] == [True]


def test_weights_in_hours() -> None:
    def text(**facts: object) -> str:
        known = {**GOOD, **ORDERED, "partitions": parted(1, 2), **facts}
        return worth(facts_of(Loaded(Settings()), None, **known))

    assert text() == "the longest delay is 168 h = 5040 points"
    assert text(system=UNAGED) == "the longest delay is 168 h = 60480 points"
    used = {"qos": LEVELS, "pending": waiting("normal", "high")}
    assert "QOS normal and high are 667 h apart" in text(**used)
    assert "QOS normal and high are 6.67e+05 h" in text(**used, flags=["NO_NORMAL_QOS"])
    assert "who wait by up to 252 h, at least 84 h" in text(shares=(0.25, 0.5, 1.0))
    wide = text(shares=(0.5, 1.0), weights={**WEIGHTS, "FairShare": "40000"})
    assert "at least 667 h, so that delays mostly order the jobs of one user" in wide
