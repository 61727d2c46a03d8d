"""Rows become domain types; what cannot be read raises and names its place."""

import re
from pathlib import Path

import pytest

from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope, select
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import UNDO_COLUMNS, WATCH_COLUMNS
from rltuned.slurm.nodes import is_schedulable, read_nodes
from rltuned.slurm.request import Requests, split_evenly
from rltuned.slurm.run import SlurmCli
from rltuned.slurm.site import parse_config, read_site
from rltuned.slurm.squeue import TWICE, QueueReader, address
from rltuned.slurm.values import parse_gres, parse_tasks
from tests.recorded import DATA, MARKS, Recording, replay
from tests.unit.slurm.rows import node_row, row

RECORDED = Recording(DATA / "22.05")


def node(**changed: str) -> tuple[int, int, int, bool]:
    (found,) = read_nodes([node_row(**changed)])[0]
    return found.free.gpus, found.free.cpus, found.free.mem_mib, found.schedulable


def test_node() -> None:
    assert node() == (3, 6, 31_000, True)


@pytest.mark.parametrize(
    ("gres", "used", "free"),
    [
        ("gpu:4", "gpu:(null):3(IDX:0-2)", 1),
        ("gpu:4", "gpu:3(IDX:0-2)", 1),
        ("gpu:p100:4", "gpu:3", 1),
        ("gpu:p100:2,gpu:k80:2", "gpu:p100:1(IDX:0),gpu:k80:2(IDX:2-3)", 1),
        ("gpu:t4:4,shard:t4:16", "gpu:t4:1(IDX:0),shard:t4:5(IDX:1,3)", 1),
        ("gpu:t4:4,shard:t4:16", "gpu:t4:0(IDX:N/A),shard:t4:5(4/4,1/4,0/4,0/4)", 2),
        ("gpu:t4:4,shard:t4:16", "gpu:t4:0(IDX:N/A),shard:t4:5", 0),
        ("gpu:t4:2,mps:200", "gpu:t4:0(IDX:N/A),mps:50(50/100,0/100)", 1),
        ("gpu:p100:4", "gpu:p100:9", 0),
        ("(null)", "(null)", 0),
        ("(null)", "gpu:0,shard:0", 0),
        ("craynetwork:4", "craynetwork:0", 0),
    ],
)
def test_free_gpus(gres: str, used: str, free: int) -> None:
    assert node(gres=gres, gresused=used)[0] == free


def test_more_handed_out_than_there_is_leaves_nothing() -> None:
    assert node(cpusstate="16/0/0/8", allocmem="99999")[1:3] == (0, 0)


TAKES_JOBS = (
    "idle", "MIXED+PLANNED", "idle+cloud+powered_down", "idle~", "allocated", "idle-",
    "mixed+reboot_requested", "idle@", "mixed+cloud+not_responding+powering_up",
)  # fmt: skip
TAKES_NONE = (
    "idle*", "allocated+drain+reboot_requested", "idle+cloud+drain+powered_down",
    "idle+cloud+powering_down", "mixed+power_down", "idle+reboot_issued",
    "mixed+maintenance+reserved", "idle+cloud+not_responding", "down", "down*", "mixed+drain",
    "allocated+drain", "idle+drain", "idle+maint", "idle$", "idle+reserved", "reserved",
    "idle+not_responding", "idle+fail", "idle%", "mixed+something_new", "unknown", "",
)  # fmt: skip


def test_schedulable() -> None:
    assert [state for state in TAKES_JOBS + TAKES_NONE if is_schedulable(state)] == [*TAKES_JOBS]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"cpusstate": "2/6/8"}, "no CPU counts"),
        ({"memory": "lots"}, "no amount"),
        ({"memory": "999999999P"}, "too much"),
        ({"cpusstate": f"0/0/0/{2**64}"}, "too much"),
        ({"gres": "gpu:p100:4("}, "brackets"),
        ({"gresused": "(null)"}, "is not shown"),
        ({"gresused": "N/A"}, "is not shown"),
        ({"gres": "gpu:a:1,gpu:b:1", "gresused": "gpu:c:1"}, "none of that type"),
    ],
)
def test_node_that_cannot_be_read_is_named(changed: dict[str, str], says: str) -> None:
    with pytest.raises(SnapshotError, match=f"sinfo: node n1: .*{says}"):
        node(**changed)


def test_a_node_that_cannot_be_read_costs_that_node() -> None:
    nodes, _, unread = read_nodes([node_row(), node_row("n2", cpusstate="many")])
    assert [n.name for n in nodes] == ["n1"]
    assert [(u.kind, u.name) for u in unread] == [("node", "n2")]


def test_a_partition_that_cannot_be_read_costs_that_partition() -> None:
    other = node_row(partition="other", prioritytier="high")
    nodes, partitions, unread = read_nodes([node_row(), other])
    assert [p.name for p in partitions] == ["gpu"]
    assert nodes[0].partitions == ("gpu", "other")
    assert [(u.kind, u.name) for u in unread] == [("partition", "other")]


def test_node_without_partition_is_in_none() -> None:
    (found,), partitions, _ = read_nodes([node_row(partition="N/A")])
    assert (found.partitions, partitions) == ((), ())


def ask(changed: dict[str, str], *, running: bool = False, counts: bool = True) -> Resources:
    requests = Requests(frozenset({"whole"}), memory_counts=counts)
    return requests.read(row(**changed), running=running).total


@pytest.mark.parametrize(
    ("changed", "gpus"),
    [
        ({"tres_per_node": "gres/gpu:2,gres/shard:1"}, 2),
        ({"tres_per_job": "gres:gpu:8", "tres_per_node": "gres:gpu:4"}, 8),
        ({"tres_per_task": "gres/gpu=1", "numtasks": "5", "tres_per_socket": "gres:gpu:2"}, 5),
        ({"tres_alloc": "cpu=2,mem=1M,node=1,gres/gpu=7", "tres_per_node": "gres:gpu:2"}, 7),
    ],
)
def test_gpus_of_several_forms(changed: dict[str, str], gpus: int) -> None:
    assert ask(changed).gpus == gpus


def test_memory_follows_the_cpus_that_slurm_did_not_count_yet() -> None:
    many = {"cpus_per_tres": "gres:gpu:3", "tres_per_job": "gres:gpu:2"}
    assert ask(many) == Resources(2, 6, 3000)
    assert ask(many | {"mem_per_tres": "gres:gpu:2048"}) == Resources(2, 6, 4096)
    assert ask(many, running=True) == Resources(2, 2, 1000)


def test_all_memory_is_what_a_job_with_memory_per_gpu_seems_to_ask_for() -> None:
    """Seen on 22.05: it shows 0 for some milliseconds while the scheduler tries it."""
    tried = row(minmemory="0", mem_per_tres="gres:gpu:2048", tres_per_job="gres:gpu:2")
    assert Requests(frozenset(), memory_counts=True).read(tried, running=False).outside == ()


def test_memory_that_is_not_handed_out_is_not_asked_for() -> None:
    assert ask({"tres_alloc": "cpu=2,node=1"}, counts=False).mem_mib == 0
    with pytest.raises(ValueError, match="no memory in the request"):
        ask({"tres_alloc": "cpu=2,node=1"})


@pytest.mark.parametrize(
    "changed",
    [
        {"numcpus": str(2**64 - 1)},
        {"mincpus": "9" * 30},
        {"tres_alloc": "cpu=1,mem=999999999P,node=1"},
        {"tres_per_node": f"gres:gpu:{10**18 - 1}"},
        {"numnodes": "9" * 30},
    ],
)
def test_amounts_that_nothing_has_cost_that_job(changed: dict[str, str]) -> None:
    """They ended every cycle, and after three of them the daemon."""
    with pytest.raises(ValueError, match="too much"):
        ask(changed)


def test_one_exclusive_partition_of_several_makes_a_job_exclusive() -> None:
    requests = Requests(frozenset({"whole"}), memory_counts=True)
    assert requests.read(row(partition="gpu,whole"), running=False).exclusive


def test_split_evenly() -> None:
    assert split_evenly(5, (4, 1)) == [4, 1]
    assert split_evenly(16, (16, 8)) == [8, 8]
    assert split_evenly(7, (4, 4)) == [4, 3]
    assert split_evenly(9, (2, 2)) == [2, 7]  # more than fits is still all counted
    assert split_evenly(0, (4,)) == [0]


def test_addresses() -> None:
    head, other = JobId(12), JobId(14)
    assert address(head, head, None, 1) == "12"
    assert address(head, head, parse_tasks("0-3%2"), 1) == "12"
    assert address(head, head, parse_tasks("0-1,3%2"), 2) == "12_[0-1,3]"
    assert address(other, head, parse_tasks("2"), 2) == "12_2"
    assert address(other, head, parse_tasks("2%1"), 1) == "12_2"
    assert address(other, head, parse_tasks("2-3"), 2) == "14"  # 12_[2-3] might mean others too


def test_site() -> None:
    site = read_site(parse_config(RECORDED.text("config")))
    assert (site.cluster, site.version) == ("rltlab", (22, 5))
    assert site.multifactor
    assert site.memory_counts
    for key in ("SLURM_VERSION", "PriorityType"):
        broken = re.sub(rf"(?m)^{key} .*$", "", RECORDED.text("config"))
        with pytest.raises(SnapshotError, match=f"no {key}"):
            read_site(parse_config(broken))


# -- whole answers, through the real commands ---------------------------------------------------


def edited(job: str, **cells: str) -> str:
    """The recorded queue with other cells in the row of one job; columns as squeue names them."""
    end = "\x1e#recorded\n"
    head, *records = RECORDED.text("squeue").split(end)
    mark = f"\x1f{RECORDED.ids[job]}\x1f{RECORDED.ids[job]}\x1f"
    (at,) = (number for number, record in enumerate(records) if mark in record)
    fields, names = records[at].split("\x1f"), head.split("\x1f")
    for name, value in cells.items():
        fields[names.index(name)] = value
    records[at] = "\x1f".join(fields)
    return end.join([head, *records])


@pytest.mark.parametrize("name", ["squeue", "sinfo", "sprio"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.999])
def test_cut_answers_skip_the_cycle(tmp_path: Path, name: str, part: float) -> None:
    text = RECORDED.text(name)
    cut = text[: int(len(text) * part)]
    with pytest.raises(SnapshotError, match=name):
        replay(tmp_path, RECORDED, **{name: cut}).observe()


@pytest.mark.parametrize("name", ["squeue", "sinfo", "sprio", "config"])
def test_garbage_skips_the_cycle(tmp_path: Path, name: str) -> None:
    with pytest.raises(SnapshotError):
        replay(tmp_path, RECORDED, **{name: "\x00\udcff|=\n" * 50}).observe()


def test_an_unreadable_field_costs_that_job(tmp_path: Path) -> None:
    job_id = RECORDED.ids["unlimited"]
    seen = replay(tmp_path, RECORDED, squeue=edited("unlimited", TIME_LIMIT="a while")).observe()
    whole = replay(tmp_path, RECORDED).observe()
    assert [(u.kind, u.job_id) for u in seen.unreadable] == [("job", job_id)]
    job = next(j for j in seen.pending if j.job_id == job_id)
    assert "'a while' is no time limit" in job.unreadable
    assert job.priority > 0
    assert [j for j in seen.pending if j is not job] == [
        j for j in whole.pending if j.job_id != job_id
    ]
    assert (job_id, Refusal.UNREADABLE) in select(seen, Scope()).refused


def test_running_on_an_unknown_node_takes_what_it_has_on_the_others(tmp_path: Path) -> None:
    lines = [r for r in RECORDED.text("sinfo").split("\n") if not r.startswith("p2\x1f")]
    seen = replay(tmp_path, RECORDED, sinfo="\n".join(lines)).observe()
    whole = replay(tmp_path, RECORDED).observe()
    both = RECORDED.ids["r_multi"]
    (before,), (now,) = ([j.shares for j in s.running if j.job_id == both] for s in (whole, seen))
    assert now == tuple(share for share in before if share.node != "p2")
    assert {j.job_id for j in seen.running} == {j.job_id for j in whole.running}


def test_failing_command_is_a_backend_error(tmp_path: Path) -> None:
    it = replay(tmp_path, RECORDED)
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'slurm_load_node: down' >&2\nexit 1\n")
    with pytest.raises(BackendError, match="sinfo ended with 1: slurm_load_node: down"):
        it.observe()


def test_priority_basic_needs_no_sprio(tmp_path: Path) -> None:
    config = RECORDED.text("config").replace("priority/multifactor", "priority/basic")
    snapshot = replay(tmp_path, RECORDED, config=config, sprio="").observe()
    assert {j.site_factor for j in snapshot.pending} == {None}


@pytest.mark.parametrize("cells", [{"ST": "P\x1b[31mD"}, {"JOBID": "9" * 30}, {"JOBID": "4_42"}])
def test_values_that_slurm_cannot_mean_cost_that_job(tmp_path: Path, cells: dict[str, str]) -> None:
    seen = replay(tmp_path, RECORDED, squeue=edited("gpu_plain", **cells)).observe()
    whole = replay(tmp_path, RECORDED).observe()
    assert len(seen.pending) == len(whole.pending) - 1
    assert len(seen.unreadable) == 1
    assert seen.hidden_ids()


def test_a_gres_has_a_plain_name() -> None:
    with pytest.raises(ValueError, match="is no GRES"):
        parse_gres("gres:\x1b[31m")


def test_a_line_of_sprio_without_a_number_makes_jobs_without_another_line_unreadable(
    tmp_path: Path,
) -> None:
    job_id = RECORDED.ids["gpu_plain"]
    text, count = re.subn(rf"(?m)^{job_id}\x1f", "none\x1f", RECORDED.text("sprio"))
    assert count == 1
    seen = replay(tmp_path, RECORDED, sprio=text).observe()
    whole = replay(tmp_path, RECORDED).observe()
    readable = {j.job_id for j in seen.pending if not j.unreadable}
    assert job_id not in readable
    shown = {j.job_id for j in whole.pending if j.site_factor is not None}
    assert readable >= shown - {job_id}


def test_the_roomiest_node_says_on_how_few_nodes_a_job_can_run(tmp_path: Path) -> None:
    """Six CPUs fit on one node of eight, whatever the smaller nodes of the partition have."""
    job_id = RECORDED.ids["gpu_plain"]
    asks = {"TRES_ALLOC": "cpu=6,mem=1000M,node=1", "CPUS": "6", "TASKS": "1", "NODES": "3"}
    seen = replay(tmp_path, RECORDED, squeue=edited("gpu_plain", **asks)).observe()
    (request,) = (j.request for j in seen.pending if j.job_id == job_id)
    assert (request.total.gpus, request.nodes, request.nodes_most) == (2, 1, 3)


@pytest.mark.parametrize(
    ("column", "rows", "known"),
    [
        ("START_TIME", [("12", "1700000000"), ("13", "1800000000")], 1_700_000_000.0),
        ("START_TIME", [("13", "1")], None),
        ("COMMENT", [("12", "x rltuned.speed=1:1,2:1.9"), ("13", "rltuned.speed=1:7")],
         {1: 1.0, 2: 1.9}),
        ("COMMENT", [("12", "")], {}),
        ("COMMENT", [("13", "rltuned.speed=1:1")], {}),
    ],
)  # fmt: skip
def test_expected_start_and_speeds_are_those_of_the_job_that_is_asked_for(
    tmp_path: Path, column: str, rows: list[tuple[str, str]], known: object
) -> None:
    it = replay(tmp_path, RECORDED)
    it.observe()
    table = [("JOBID", column), *rows]
    (tmp_path / "table").write_text("".join(f"{a}\x1f{b}\x1e#recorded\n" for a, b in table))
    (tmp_path / "squeue").write_text(f"#!/bin/sh\nexec cat {tmp_path}/table\n")
    ask = it.speeds if column == "COMMENT" else it.expected_start
    assert ask(JobId(12)) == known
    if known:
        with (tmp_path / "table").open("a") as more:
            more.write("12\x1f1600000000\x1e#recorded\n")
        with pytest.raises(SnapshotError, match=f"job 12: {TWICE}"):
            ask(JobId(12))


@pytest.mark.parametrize("changed", ["", "submittime", "nice", "reason"])
def test_a_job_whose_id_stands_twice_is_not_written_to(tmp_path: Path, changed: str) -> None:
    site = replay(tmp_path, RECORDED)
    jobs = [job for job in site.observe().pending if not job.is_held][:2]
    texts = [dict.fromkeys(UNDO_COLUMNS, "1") | _watched(job) for job in jobs]
    forged = texts[0] | ({changed: "7"} if changed else {})

    def shown(names: tuple[str, ...]) -> None:
        rows = (names, *([known[name] for name in names] for known in (*texts, forged)))
        answer = "".join("\x1f".join(row) + MARKS.record + "\n" for row in rows)
        (tmp_path / "answers" / "watch").write_text(answer, newline="")

    shown(UNDO_COLUMNS)
    seen = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: 1.0, marks=MARKS).look()
    assert [job.job_id for job in seen.pending] == [jobs[1].job_id]
    assert [(bad.job_id, bad.why) for bad in seen.unreadable] == [(jobs[0].job_id, TWICE)]
    reader = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: 1.0, marks=MARKS)
    shown(WATCH_COLUMNS)
    watched = reader.watch([job.job_id for job in jobs], factors=False)
    assert [TWICE in watched[job.job_id].unreadable for job in jobs] == [True, False]
    assert watched[jobs[0].job_id].is_held  # so that nothing releases it


def _watched(job: PendingJob) -> dict[str, str]:
    return {
        "jobid": str(job.job_id),
        "arrayjobid": str(job.job_id),
        "arraytaskid": "N/A",
        "statecompact": "PD",
        "submittime": str(int(job.submitted_at)),
        "hetjobid": "0",
    }


def test_a_record_that_cannot_be_read_is_named() -> None:
    queue = QueueReader().read([row(prioritylong="many")])
    assert (queue.pending, queue.others) == ((), 1)
    assert [(bad.job_id, "'many'" in bad.why) for bad in queue.unreadable] == [(7, True)]


def test_records_of_an_array_name_their_tasks_where_there_are_others() -> None:
    head = row(arraytaskid="0-3%2")
    task = row(jobid="9", arraytaskid="5")
    alone = QueueReader().read([head])
    both = QueueReader().read([task, head])
    read_back = QueueReader(only={"7"}, siblings=1).read([head, row(jobid="8", arrayjobid="8")])
    found = [[job.address for job in queue.pending] for queue in (alone, both, read_back)]
    assert found == [["7"], ["7_5", "7_[0-3]"], ["7_[0-3]"]]
    assert not QueueReader(only={"9"}).read([head]).pending
