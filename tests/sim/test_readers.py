"""Small files in the documented original formats, written for these tests."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from rltuned.errors import TraceError
from rltuned.lab.cli.traces import READERS, read_sacct_text
from rltuned.lab.replay.readers import finish, read_pai, read_philly_csv, read_philly_log, read_swf
from rltuned.sim.trace import Trace

PHILLY = """\
job_id,submit_local,submit_epoch,num_gpus,run_time,n_attempts,vc,final_status,user,vc_source
7,2017-10-01 00:00:27,1506830427,1,13138,1,6214e9,Killed,45,gavel
8,2017-10-01 00:00:30,1506830430,8,0,1,,Pass,,pollux
9,2017-10-01 00:00:20,1506830420,4,30,1,,Pass,,pollux
9,2017-10-01 00:00:40,1506830440,4,30,1,,Pass,,pollux
10,2017-10-01 00:00:40,soon,4,30,1,,Pass,,pollux
11,2017-10-01
"""
GPUS = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
AT = "2017-10-03 12:0"
PHILLY_LOG = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1_1",
        "submitted_time": f"{AT}0:00",
        "user": "b55d2b",
        "attempts": [
            {"start_time": f"{AT}1:00", "end_time": f"{AT}2:00", "detail": GPUS},
            {"start_time": f"{AT}5:00", "end_time": f"{AT}7:00", "detail": GPUS},
            {"start_time": None, "end_time": None, "detail": []},
        ],
    },
    {"jobid": "application_1_2", "submitted_time": f"{AT}0:10", "attempts": []},
    {"jobid": "application_1_3"},
]
HELIOS = """\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vcA,x,16,64,2,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:01:20,60,10
2,u1,vcA,x,0,4,1,FAILED,2020-04-01 00:00:12,2020-04-01 00:00:20,2020-04-01 00:01:20,60,8
3,u1,vcA,x,1,4,1,FAILED,yesterday,2020-04-01 00:00:20,2020-04-01 00:01:20,60,8
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
scheduled_time
pod-0,12500,16384,1,460,V100M16|V100M32,LS,Running,0,120,20.0
pod-1,12000,16384,1,1000,,LS,Pending,5,120,
"""
SWF = """\
; Version: 2
1 10 -1 100 16 -1 -1 -1 -1 -1 1 3 4 0 -1 -1 -1 -1
2 20 5 100 -1 -1 -1 8 7200 2048 0 3 -1 0 -1 -1 -1 -1
3 20 5 -1 4 -1 -1 4 -1 -1 5 -1 -1 -1 -1 -1 -1 -1
4 20 5
"""
SACCT = """\
JobID|Submit|Start|End|Timelimit|ReqTRES|NNodes|Partition|User|Account|QOS|State
12_3|2024-01-01T10:00:00|2024-01-01T10:01:00|2024-01-01T11:01:00|1-00:00:00|\
billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2|2|gpu|ada|lab|normal|COMPLETED
12_3.batch|2024-01-01T10:00:00|2024-01-01T10:01:00|2024-01-01T11:01:00||cpu=8|1|||lab||COMPLETED
13|2024-01-01T10:00:00|Unknown|Unknown|UNLIMITED|cpu=1,mem=1000M,node=1|1|gpu|ada|lab|normal|PENDING
14|2024-01-01T10:00:05|2024-01-01T10:01:00|2024-01-01T10:01:30|UNLIMITED|\
cpu=1,mem=500K,node=1|1|cpu|bob|lab|normal|CANCELLED by 1000
"""
Facts = tuple[object, ...]


@pytest.mark.parametrize(
    ("kind", "text", "names", "jobs", "bad"),
    [
        (
            "philly",
            PHILLY,
            "job_id gpus duration_s account",
            [("9", 4, 30.0, ""), ("7", 1, 13138.0, "6214e9")],
            [(3, "duration_s"), (5, "twice"), (6, "submit_epoch"), (7, "2 fields")],
        ),
        (
            "philly-log",
            json.dumps(PHILLY_LOG),
            "gpus duration_s user status",
            [(3, 180.0, "b55d2b", "Pass")],
            [(2, "no attempt with"), (3, "not a job")],
        ),
        (
            "helios",
            HELIOS,
            "gpus cpus nodes account",
            [(16, 64, 2, "vcA"), (0, 4, None, "vcA")],
            [(4, "submit_time")],
        ),
        (
            "openb",
            OPENB,
            "gpus cpus duration_s gpu_types",
            [(1, 13, 100.0, ("V100M16", "V100M32"))],
            [(3, "never scheduled")],
        ),
        (
            "swf",
            SWF,
            "gpus time_limit_s mem_mib user account status",
            [(16, math.inf, None, "3", "4", "COMPLETED"), (8, 7200.0, 16, "3", "", "FAILED")],
            [(4, "duration_s"), (5, "3 fields")],
        ),
        (
            "sacct",
            SACCT,
            "job_id gpus gpu_types nodes cpus mem_mib time_limit_s duration_s user status",
            [
                ("12_3", 4, ("a100",), 2, 8, 65_536, 86_400.0, 3_600.0, "ada", "COMPLETED"),
                ("14", 0, (), None, 1, 1, math.inf, 30.0, "bob", "CANCELLED"),
            ],
            [(4, "not run to its end")],
        ),
    ],
)
def test_good_rows_are_kept_and_bad_ones_named_by_line(
    *,
    tmp_path: Path,
    kind: str,
    text: str,
    names: str,
    jobs: list[Facts],
    bad: list[tuple[int, str]],
) -> None:
    path = tmp_path / "source"
    path.write_text(text)
    found = (READERS | {"swf": read_swf})[kind](path)
    assert [tuple(getattr(j, name) for name in names.split()) for j in found.jobs] == jobs
    assert [b.line for b in found.bad] == [line for line, _ in bad]
    assert all(why in b.why for b, (_, why) in zip(found.bad, bad, strict=True))


def test_limits_are_drawn_and_submits_count_from_0(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    trace = finish(read_philly_csv(path), path, limits="informative", seed=3)
    assert [(j.job_id, j.submit_s) for j in trace.jobs] == [("9", 0.0), ("7", 7.0)]
    assert all(j.duration_s <= j.time_limit_s < math.inf for j in trace.jobs)
    assert trace.notes["bad_rows"] == "4"
    assert "seed 3" in trace.notes["synthetic"]


def test_a_quote_that_stays_open_and_a_time_that_is_none_cost_their_rows(tmp_path: Path) -> None:
    header, good, *_ = PHILLY.splitlines()
    _, submitted, epoch, *rest = good.split(",")
    wrong = {2: "1e18", 3: "-1e15", 4: f"{epoch}000"}
    rows = [",".join((str(n), submitted, wrong.get(n, epoch), *rest)) for n in range(5_000)]
    rows[1] = f'"{rows[1]}'
    path = tmp_path / "philly.csv"
    path.write_text("\n".join((header, *rows)))
    reading = read_philly_csv(path)
    assert [b.line for b in reading.bad] == [3, 4, 5, 6]
    assert len(reading.jobs) == 4_996
    finish(reading, path, limits=None, seed=1)
    path.write_text(f'"{path.read_text()}')
    with pytest.raises(TraceError, match=f"^{path}:1: header: "):
        read_philly_csv(path)


def pai_tables(folder: Path) -> None:
    (folder / "pai_job_table.csv").write_text(
        "j1,i1,userA,Terminated,1000.0,5000.0\n"
        "j2,i2,userB,Terminated,1100.0,5000.0\n"
        "j3,i3,userB,Failed,1200.0,\n"
    )
    (folder / "pai_task_table.csv").write_text(
        "j1,ps,1.0,Terminated,1010.0,5000.0,600.0,10.0,,CPU\n"
        "j1,worker,3.0,Terminated,1010.0,5000.0,150.0,29.5,50.0,V100\n"
        "j3,worker,1.0,Failed,1210.0,,100.0,1.0,100.0,T4\n"
    )
    (folder / "pai_instance_table.csv").write_text(
        "j1,worker,x,w1,i,Terminated,1500.0,2500.0,m1\n"
        "j1,worker,x,w2,i,Terminated,1600.0,2600.0,m2\n"
        "j9,worker,x,w2,i,Terminated,1600.0,2600.0,m2\n"
    )


def test_pai_tables_are_joined(tmp_path: Path) -> None:
    pai_tables(tmp_path)
    reading = read_pai(tmp_path)
    (job,) = reading.jobs
    assert (job.submit_s, job.duration_s, job.user) == (1000.0, 1100.0, "userA")
    # 3 x 0.5 GPUs -> 2; 6 + 3 x 1.5 CPUs -> 11; 10 + 3 x 29.5 GiB
    assert (job.gpus, job.gpu_types, job.cpus, job.mem_mib) == (2, ("V100",), 11, 100_864)
    assert [(b.line, b.why.split(":")[0]) for b in reading.bad] == [
        (3, "instance table"),
        (2, "no task of job j2"),
        (3, "job j3 has no start with a later end"),
    ]
    (tmp_path / "pai_instance_table.csv").unlink()  # then it goes by the tasks
    assert read_pai(tmp_path).jobs[0].duration_s == 3990.0
    (tmp_path / "pai_task_table.csv").unlink()
    with pytest.raises(TraceError, match="no pai_task_table"):
        read_pai(tmp_path)


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (read_swf, "1 2 3\n", ":1: 3 fields instead of 18"),
        (read_philly_csv, "not a header\n", ": header: no column 'job_id'"),
        (read_philly_log, "{", ":1: not JSON"),
        (read_philly_log, "[", ":1: not JSON"),
        (read_sacct_text, "", ": empty"),
    ],
)
def test_a_file_without_usable_jobs_is_refused(
    tmp_path: Path, read: Callable[[Path], Trace], text: str, why: str
) -> None:
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(TraceError, match=f"^{path}{why}"):
        read(path)


def test_a_byte_of_another_code_page_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_bytes(
        b"; Site: Universit\xe9 de X\n; \xff\xfe\n1 0 9 99 2 -1 -1 2 120 -1 1 3 4 1 1 -1 -1 -1\n"
    )
    (job,) = read_swf(path).jobs
    assert (job.gpus, job.user) == (2, "3")
    table = tmp_path / "philly.csv"
    table.write_bytes(PHILLY.replace("45,gavel", "Andr\xe9,gavel").encode("latin-1"))
    assert read_philly_csv(table).jobs[1].user == "Andr\\xe9"


@pytest.mark.parametrize("unknown", ["-1", "-1.0", "-1.00", "-1e0"])
def test_unknown_in_swf_is_a_number_in_any_form(tmp_path: Path, unknown: str) -> None:
    path = tmp_path / "a.swf"
    row = "1 0 3 60 8 -1 -1 {0} {0} {0} {0} {0} {0} 1 1 -1 -1 -1"
    path.write_text(f"{row.format(unknown)}\n{row.format(4).replace('1 0', '2 0', 1)}\n")
    reading = read_swf(path)
    assert not reading.bad
    assert [(j.gpus, j.time_limit_s, j.user, j.mem_mib) for j in reading.jobs] == [
        (8, math.inf, "", None),
        (4, 4.0, "4", 1),
    ]
    assert reading.jobs[0].status == ""
    on_cpus = read_swf(path, processors_are="cpus").jobs[0]
    assert (on_cpus.gpus, on_cpus.cpus) == (0, 8)
