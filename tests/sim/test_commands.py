"""`rltuned simulate` and `rltuned traces` as a person runs them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.errors import ModelError, RltunedError, TraceError
from rltuned.lab.cli.options import check_folder
from rltuned.lab.replay.trace_file import read_trace, write_trace
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob
from tests import needs

CONTRACT_KEYS = {
    "wait_s",
    "wait_p95_s",
    "wait_p99_s",
    "wait_max_s",
    "jct_s",
    "bsld",
    "utilisation",
    "makespan_s",
    "jobs",
    "decisions",
    "writes",
    "elapsed_s",
}


def run(*args: object) -> Result:
    result = CliRunner().invoke(app, [str(a) for a in args])
    if isinstance(result.exception, RltunedError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    write_trace(synthesize("testbed-1024", jobs=120, seed=4, free_share=0.4), path)
    return path


def simulate(*args: object) -> Any:
    return json.loads(run("simulate", *args, "--json").stdout)


def test_json_is_as_the_contract_says(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    done = simulate(
        "--trace", trace, "--cluster", "testbed", "--policy", "fcfs", "--policy", "sjf",
        "--jobs-out", out,
    )  # fmt: skip
    assert set(done) == {"jobs", "policies"}
    assert done["jobs"] == 120
    assert list(done["policies"]) == ["fcfs", "sjf"]
    assert all(set(figures) == CONTRACT_KEYS for figures in done["policies"].values())
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "policy", "window", "job_id", "submit_s", "start_s", "end_s", "nodes",
    ]  # fmt: skip
    mine = [r for r in rows if r["policy"] == "sjf"]
    assert len(mine) == 120
    waits = np.array([float(r["start_s"]) - float(r["submit_s"]) for r in mine])
    jcts = np.array([float(r["end_s"]) - float(r["submit_s"]) for r in mine])
    figures = done["policies"]["sjf"]
    assert figures["wait_s"] == pytest.approx(waits.mean())
    assert figures["wait_p95_s"] == pytest.approx(np.percentile(waits, 95))
    assert figures["jct_s"] == pytest.approx(jcts.mean())
    jobs = {j.job_id: j for j in read_trace(trace).jobs}
    slow = [
        max(1.0, (w + jobs[r["job_id"]].duration_s) / max(jobs[r["job_id"]].duration_s, 10.0))
        for w, r in zip(waits, mine, strict=True)
    ]
    assert figures["bsld"] == pytest.approx(np.mean(slow))
    first, last = min(float(r["submit_s"]) for r in mine), max(float(r["end_s"]) for r in mine)
    assert figures["makespan_s"] == pytest.approx(last - first)
    used = sum(jobs[r["job_id"]].gpus * (float(r["end_s"]) - float(r["start_s"])) for r in mine)
    assert figures["utilisation"] == pytest.approx(used / (13 * (last - first)))
    for row in mine:
        taken = sum(int(part.rpartition(":")[2]) for part in row["nodes"].split("|"))
        assert taken == jobs[row["job_id"]].gpus


def test_windows_and_warm_up(trace: Path) -> None:
    args = ("--trace", trace, "--cluster", "testbed", "-p", "saf")
    cut = ("--windows", 3, "--window-jobs", 30, "--seed", 2)
    done = simulate(*args, *cut)
    assert done["jobs"] == done["policies"]["saf"]["jobs"] == 90
    again = simulate(*args, *cut)
    other = simulate(*args, *cut[:-1], 3)
    assert done["policies"]["saf"]["wait_s"] == again["policies"]["saf"]["wait_s"]
    assert done["policies"]["saf"]["wait_s"] != other["policies"]["saf"]["wait_s"]
    assert simulate(*args, "--first", 50, "--warmup", 20)["jobs"] == 30


def test_people_get_a_table(trace: Path) -> None:
    shown = run("simulate", "--trace", trace, "--cluster", "testbed", "-p", "wfp3", "--first", 40)
    assert "wfp3" in shown.stdout


@pytest.mark.parametrize(
    ("args", "reply"),
    [
        (("-p", "best"), "no policy 'best'; known: fcfs"),
        (("-p", "fcfs", "--first", 0), "--first 0"),
        (("-p", "fcfs", "--first", 9, "--warmup", 9), "--warmup 9"),
        (("-p", "fcfs", "--windows", 2, "--window-jobs", 500), "2 windows of 500 jobs"),
        (("-p", "fcfs", "--windows", 2, "--first", 5), "exclude each other"),
        (("-p", "clairvoyant:sjf", "--mode", "cycle"), "event mode only"),
        (("-p", "fcfs", "--jobs-out", "/no/such/a.csv"), "cannot be written: no folder"),
        (("-p", "fcfs", "--jobs-out", "/tmp"), "/tmp: cannot be written: it is a folder"),
        (("-p", "model:none"), "no such folder"),
        (("-p", "saf", "--own", "inf"), "not a number"),
    ],
)
def test_wrong_use_costs_one_line(trace: Path, args: tuple[object, ...], reply: str) -> None:
    with pytest.raises((TraceError, ModelError, AssertionError), match=reply):
        run("simulate", "--trace", trace, "--cluster", "testbed", *args)


def test_a_job_larger_than_the_cluster_is_refused_by_id_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\nbig,0,5,99\nok,1,5,1\n")
    args = ("--trace", path, "--cluster", "testbed", "-p", "fcfs")
    with pytest.raises(TraceError, match="job big can never run on testbed: 99 GPUs"):
        run("simulate", *args)
    done = simulate(*args, "--skip-impossible")
    assert (done["jobs"], done["skipped_impossible"]) == (1, 1)


def test_a_node_that_stays_down_leaves_no_job_out_silently(tmp_path: Path) -> None:
    path, faults = tmp_path / "t.csv", tmp_path / "f.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,gpu_type\na,0,5,1,m40\n")
    faults.write_text("at_s,node,change\n2,m1,fail\n")
    args = ("--trace", path, "--cluster", "testbed", "-p", "fcfs", "--faults", faults)
    with pytest.raises(TraceError, match="1 jobs never started, the first is row 1"):
        run("simulate", *args)
    faults.write_text("at_s,node,change\n\n2,m7,fail\n")
    for mode in ("event", "cycle"):
        with pytest.raises(TraceError, match=f"^{faults}:3: fault at 2 s: no node named 'm7'$"):
            run("simulate", *args, "--mode", mode)


def test_where_nobody_waits_it_says_so(tmp_path: Path) -> None:
    trace = tmp_path / "quiet.csv"
    rows = [TraceJob(str(n), 10_000.0 * n, 60.0, 1 + n % 12, 600.0) for n in range(24)]
    write_trace(Trace(tuple(rows)), trace)
    reply = run("simulate", "--trace", trace, "--cluster", "philly-192", "--policy", "saf")
    assert "Nobody waits in any order" in reply.stdout
    assert "and 4 others" in run("traces", "describe", trace).stdout


def test_traces_from_end_to_end(tmp_path: Path) -> None:
    made, scaled, part = (tmp_path / n for n in ("a.csv.gz", "b.csv", "c.csv"))
    run("traces", "synth", "philly-like", "--jobs", 300, "--seed", 5, "-o", made)
    run("traces", "scale", made, "--load", 0.9, "--cluster", "philly-192", "-o", scaled,
        "--copies", 2, "--jitter", 30)  # fmt: skip
    copy = tmp_path / "b-2.csv"
    assert read_trace(tmp_path / "b-1.csv") != read_trace(copy)
    run("traces", "window", copy, "--jobs", 50, "--seed", 1, "-o", part)
    assert len(read_trace(part).jobs) == 50
    facts = json.loads(run("traces", "describe", copy, "--json").stdout)
    assert facts["offered_gpus"] == pytest.approx(0.9 * 192, rel=0.05)
    assert facts["notes"]["seed"] == "5"
    assert "run_median_s" in run("traces", "describe", part).stdout
    source = tmp_path / "s.swf"
    source.write_text("1 10 -1 100 16 -1 -1 -1 -1 -1 1 3 4 0 -1 -1 -1 -1\nwhat\n")
    reply = run("traces", "convert", source, "--from", "swf", "-o", part)
    assert f"{source}:2: 1 fields instead of 18" in reply.stderr
    assert "1 jobs, 1 bad rows" in reply.stderr
    with pytest.raises(TraceError, match="give the cluster or"):
        run("traces", "scale", made, "--load", 1, "-o", scaled)


def test_a_load_of_jobs_that_can_never_run_is_warned_of(tmp_path: Path) -> None:
    made, scaled = tmp_path / "a.csv.gz", tmp_path / "b.csv"
    run("traces", "synth", "pai-like", "--jobs", 200, "-o", made)
    said = run("traces", "scale", made, "--load", 0.9, "--cluster", "testbed", "-o", scaled)
    assert "200 of 200 jobs can never run on testbed, and the load counts them" in said.stderr
    said = run("traces", "scale", made, "--load", 0.9, "--gpus", 13, "-o", scaled)
    assert "can never run" not in said.stderr


def test_every_policy_is_bounded_unless_reported(trace: Path) -> None:
    needs.module("torch")
    names = ("fcfs", "saf", "clairvoyant:saf", "model:warmstart-saf")
    args = ("--trace", trace, "--cluster", "testbed", *(a for n in names for a in ("-p", n)))
    kept = simulate(*args)["policies"]
    free = simulate(*args, "--bounds", "off")["policies"]
    none = simulate(*args, "--max-delay", 0)["policies"]
    for name in ("saf", "model:warmstart-saf"):
        assert none[name]["wait_s"] == none["fcfs"]["wait_s"], "no delay is Slurm's own order"
        assert len({run[name]["wait_s"] for run in (none, kept, free)}) == 3, "bounds matter"
    for name in ("fcfs", "clairvoyant:saf"):  # nobody's delay, and nobody's policy
        assert kept[name]["wait_s"] == free[name]["wait_s"] == none[name]["wait_s"]


def test_the_clairvoyant_area_beats_every_rule(trace: Path) -> None:
    args = ("--trace", trace, "--cluster", "testbed", "-p", "clairvoyant:saf", "-p", "saf")
    found = simulate(*args, "--bounds", "off")["policies"]
    assert found["clairvoyant:saf"]["bsld"] < found["saf"]["bsld"]


def test_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check_folder(None)
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "in" / "new", new=True)
    with pytest.raises(TraceError, match=f"^{tmp_path}: exists already"):
        check_folder(tmp_path, new=True)
    for below in (file, file / "in" / "it"):
        with pytest.raises(TraceError, match=f"^{below}: cannot be made: {file} is no folder$"):
            check_folder(below)
