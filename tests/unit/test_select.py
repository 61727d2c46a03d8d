"""Every reason to leave a job alone, one by one, and Slurm's own reasons from 22.05 to 26.05."""

from pathlib import Path
from typing import Any

import pytest

from rltuned.core.refusals import Refusal
from rltuned.core.select import REASONS, ReasonKind, Scope, reason_of, select
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import ArrayInfo, Ownership
from rltuned.domain.units import JobId
from tests.builders import NOW, job, node, snapshot

OURS = Ownership("priority", 1_000, nice=0, original=900, earlier=(900,))
RULES = Scope(
    sla_partitions=frozenset({"sla"}),
    partitions=frozenset({"gpu", "long"}),
    excluded_users=frozenset({"mallory"}),
    excluded_accounts=frozenset({"ops"}),
    excluded_qos=frozenset({"urgent"}),
)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"partitions": ("gpu", "long")}, None),
        ({"partitions": ("gpu", "sla")}, Refusal.SLA_PARTITION),
        ({"partition": "cpu"}, Refusal.OUT_OF_SCOPE),
        ({"partitions": ("gpu", "cpu")}, None),  # or a second partition would be a way out
        ({"partitions": ("cpu", "old")}, Refusal.OUT_OF_SCOPE),
        ({"user": "mallory"}, Refusal.EXCLUDED_USER),
        ({"account": "ops"}, Refusal.EXCLUDED_ACCOUNT),
        ({"qos": "urgent"}, Refusal.EXCLUDED_QOS),
        ({"priority": 0, "held_by": "user"}, Refusal.HELD_USER),
        ({"priority": 0, "held_by": "admin"}, Refusal.HELD_ADMIN),
        ({"priority": 0}, Refusal.HELD),
        ({"priority": 0, "reason": "BadConstraints"}, Refusal.UNFULFILLABLE),
        ({"reason": "QOSNotAllowed"}, Refusal.UNFULFILLABLE),
        ({"reason": "InvalidAccount", "account": "gone"}, Refusal.UNFULFILLABLE),
        ({"reason": "InvalidAccount", "account": ""}, None),
        ({"reason": "QOSMaxJobsPerUserLimit"}, Refusal.BLOCKED),
        ({"reason": "QOSGrpGRES"}, Refusal.BLOCKED),
        ({"reason": "QOSUsageThreshold"}, Refusal.BLOCKED),
        ({"reason": "AssocGrpCPURunMinutesLimit"}, Refusal.BLOCKED),
        ({"reason": "AssociationJobLimit"}, Refusal.BLOCKED),
        ({"reason": "MaxGRESPerAccount"}, Refusal.BLOCKED),
        # as Slurm says also of a job behind another one for the same node
        ({"reason": "ReqNodeNotAvail, UnavailableNodes:n1"}, None),
        ({"reason": "Licenses"}, Refusal.BLOCKED),
        ({"reason": "BurstBufferStageIn"}, Refusal.BLOCKED),
        ({"reason": "FedJobLock"}, Refusal.BLOCKED),
        ({"reason": "MaxCpuRunMinsPerUser"}, Refusal.BLOCKED),
        ({"reason": "Job is at or exceeds QOS one's group max TRES(cpu) minutes"}, Refusal.BLOCKED),
        ({"reason": "OfALaterRelease"}, Refusal.BLOCKED),
        ({"reason": "MaxMemPerLimit"}, Refusal.UNFULFILLABLE),
        ({"reason": "PartitionConfig"}, Refusal.UNFULFILLABLE),
        ({"reason": "DeadLine"}, Refusal.UNFULFILLABLE),
        ({"reason": ""}, None),
        ({"reason": "RaisedSignal:9(Killed)"}, None),
        (
            {
                "reason": "Nodes required for job are DOWN, DRAINED or reserved for jobs in "
                "higher priority partitions"
            },
            None,
        ),
        ({"reason": "JobArrayTaskLimit"}, None),
        ({"fixed": True}, Refusal.FIXED),
        ({"fixed": True, "owned": OURS}, None),
        ({"fixed": True, "owned": OURS, "priority": 7}, Refusal.TAKEN_OVER),
        ({"cron": True}, Refusal.CRON),
        ({"job_id": 2**26}, Refusal.FEDERATED),
        ({"job_id": 2**26 - 1}, None),
        ({"het_job_id": 1}, None),
        ({"reservation": "maint"}, Refusal.RESERVATION),
        ({"dependency": "afterok:7"}, Refusal.DEPENDENCY),
        ({"reason": "Dependency"}, Refusal.DEPENDENCY),
        ({"eligible_at": None}, Refusal.NOT_ELIGIBLE),
        ({"eligible_at": NOW + 60}, Refusal.NOT_ELIGIBLE),
        ({"reason": "BeginTime"}, Refusal.NOT_ELIGIBLE),
        ({"submitted_at": NOW - 3, "eligible_at": NOW - 3}, Refusal.TOO_YOUNG),
        # an SLA job is called that also when it is held
        ({"partition": "sla", "priority": 0, "held_by": "user"}, Refusal.SLA_PARTITION),
    ],
)
def test_each_job_is_ours_or_refused_with_its_reason(
    fields: dict[str, Any], reason: Refusal | None
) -> None:
    found = select(snapshot(job(**fields)), RULES)
    assert [r for _, r in found.refused] == ([] if reason is None else [reason])
    assert len(found.chosen) == (reason is None)


@pytest.mark.parametrize(
    ("states", "names", "reason"),
    [
        ({"n1": "ALLOCATED", "n2": "IDLE"}, (), None),  # 24.11 says it of jobs behind another one
        ({"n1": "ALLOCATED", "n2": "IDLE"}, ("n1",), None),
        ({"n1": "MIXED+PLANNED", "n2": "IDLE+RESERVED"}, (), None),
        ({"n1": "MIXED", "n2": "IDLE+RESERVED"}, ("n1",), None),
        ({"n1": "MIXED", "n2": "IDLE+RESERVED"}, ("n1", "n2"), Refusal.BLOCKED),
        ({"n1": "IDLE+MAINTENANCE", "n2": "MIXED+RESERVED"}, (), Refusal.BLOCKED),
        ({"n1": "IDLE+REBOOT_REQUESTED"}, (), None),
    ],
)
def test_nodes_that_may_be_reserved_are_those_that_are(
    states: dict[str, str], names: tuple[str, ...], reason: Refusal | None
) -> None:
    waits = job(reason="ReqNodeNotAvail, May be reserved for other job", required_nodes=names)
    nodes = [node(name, state=state, partitions=waits.partitions) for name, state in states.items()]
    nodes.append(node("x1", partitions=["other"]))
    found = select(snapshot(waits, nodes=nodes), RULES)
    assert [r for _, r in found.refused] == ([] if reason is None else [reason])


def test_without_a_scope_every_partition_but_the_sla_ones_is_ours() -> None:
    rules = Scope(sla_partitions=frozenset({"sla"}))
    found = select(snapshot(job(1, partition="any"), job(2, partition="sla")), rules)
    assert [j.job_id for j in found.chosen] == [1]
    assert found.counts() == {Refusal.SLA_PARTITION: 1}


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        ({}, Refusal.SLA_PARTITION),
        ({"time_limit_s": None}, Refusal.SLA_PARTITION),
        ({"time_limit_s": 7_201.0}, None),
        ({"time_limit_s": 7_201.0, "partitions": ("sla",)}, Refusal.SLA_PARTITION),
        ({"time_limit_s": 7_201.0, "partitions": ("sla", "unknown")}, Refusal.SLA_PARTITION),
        ({"time_limit_s": 7_201.0, "partitions": ("sla", "cpu")}, Refusal.OUT_OF_SCOPE),
        ({"gpus": 3}, None),
        ({"gpu_types": ["a100"]}, None),
        ({"gpu_types": ["k80"]}, Refusal.SLA_PARTITION),  # it can run nowhere
        ({"mem_mib": 65_000}, None),
    ],
)
def test_a_promised_partition_that_a_job_cannot_run_in_is_no_way_out(
    asks: dict[str, Any], reason: Refusal | None
) -> None:
    """`-p gpu,sla` kept any job at the neutral delay, also one that could never run in sla."""
    rules = Scope(frozenset({"sla", "unknown"}), partitions=frozenset({"gpu"}))
    seen = snapshot(
        job(**{"partitions": ("gpu", "sla"), **asks}),
        nodes=[
            node(gpu_type="a100", gpus=8, mem_mib=128_000),
            node("s1", gpus=2, partitions=["sla"]),
        ],
        partitions=[Partition("gpu", default=True), Partition("sla", max_time_s=7_200.0)],
    )
    assert [r for _, r in select(seen, rules).refused] == ([] if reason is None else [reason])


def test_site_factor_mode_leaves_jobs_whose_site_factor_slurm_does_not_show() -> None:
    found = select(snapshot(job(site_factor=None)), Scope(needs_site_factor=True))
    assert [r for _, r in found.refused] == [Refusal.SITE_FACTOR_UNKNOWN]


@pytest.mark.parametrize(
    ("fields", "one_number", "reason"),
    [
        ({"uneven": True}, True, Refusal.PARTITION_PRIORITIES),
        ({"uneven": True}, False, None),
        ({"partitions": ("gpu", "long")}, True, None),
        ({"sticky": True}, True, Refusal.INCR_ONLY),
        ({"sticky": True, "uneven": True}, False, Refusal.INCR_ONLY),
        ({"uneven": True, "owned": OURS}, True, Refusal.PARTITION_PRIORITIES),
    ],
)
def test_a_job_of_several_partitions_is_ours_where_one_number_is_right_for_it(
    fields: dict[str, Any], one_number: bool, reason: Refusal | None
) -> None:
    found = select(snapshot(job(**fields)), Scope(one_number=one_number))
    assert [r for _, r in found.refused] == ([] if reason is None else [reason])


@pytest.mark.parametrize(
    ("address", "tasks", "listed", "expected"),
    [
        ("12", 1_000, "0-999", True),
        ("12", 20_000, "0-19999", True),
        ("12", 40_000, "0-39999", False),  # every third task held: 160,000 characters
        ("12", 40_000, "", False),
        ("12_[" + ",".join(map(str, range(0, 4_000, 2))) + "]", 2_000, "0-3998:2", True),
        ("12;id", 1, "", False),
    ],
)
def test_what_cannot_be_taken_back_is_never_written(
    address: str, tasks: int, listed: str, expected: bool
) -> None:
    array = ArrayInfo(JobId(12), tasks, listed=listed)
    found = select(snapshot(job(12, address=address, array=array)), Scope())
    assert bool(found.chosen) is expected
    assert [r for _, r in found.refused] == ([] if expected else [Refusal.UNADDRESSABLE])


EVERY = (Path(__file__).parents[1] / "data" / "job_reasons.txt").read_text().split()
"""All words of job_state_reason_string in these releases."""
TURN = {
    "None", "Priority", "Resources", "ReqNodeNotAvail", "JobArrayTaskLimit", "NodeDown",
    "SystemFailure", "JobLaunchFailure", "NonZeroExitCode", "RaisedSignal", "TimeLimit",
    "InactiveLimit", "OutOfMemory",
}  # fmt: skip


def test_every_word_of_every_release_is_known() -> None:
    unknown = reason_of("a word of no release")
    assert [word for word in EVERY if reason_of(word) == unknown] == []
    assert {word for word in REASONS if " " not in word} <= {*EVERY}


def test_only_jobs_that_wait_for_their_turn_are_in_line() -> None:
    assert {word for word in EVERY if reason_of(word).kind is ReasonKind.TURN} == TURN


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "None"),
        ("ReqNodeNotAvail, UnavailableNodes:p[1-2]", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail, Reserved for maintenance", "ReqNodeNotAvail"),
        ("RaisedSignal:9(Killed)", "RaisedSignal"),
    ],
)
def test_a_detail_changes_no_meaning(text: str, word: str) -> None:
    assert reason_of(text) == REASONS[word]


def test_a_reason_that_no_release_has_is_blocked_and_said() -> None:
    found = reason_of("OfALaterRelease")
    assert found.kind is ReasonKind.BLOCKED
    assert found.words
