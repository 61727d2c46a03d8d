"""A history made by a real Slurm with slurmdbd: what is read must be what was done."""

import json
import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.errors import BackendError
from rltuned.lab.backtest.sacct_files import ask_history, read_history
from rltuned.lab.cli.backtest import app
from rltuned.slurm.accounting import sacct_words
from rltuned.slurm.run import Commands, SlurmCli
from tests.accounting import OWNER, PLAIN, as_user
from tests.clusters import LAB, cluster
from tests.configs import settings_file
from tests.lab import NodeSpec, SlurmLab
from tests.programs import executable

pytestmark = pytest.mark.slurm
NODE = (NodeSpec(("g1",), cpus=8, mem_mib=8_000, gpu_type="t4", gpus=4),)
PARTITION = ("PartitionName=gpu Nodes=ALL Default=YES MaxTime=60 DefaultTime=5",)
RUNS_S = (1, 1, 2)
WIDTHS = (1, 1, 2)
COUNT = 42


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[SlurmLab, float, list[int]]]:
    """Short jobs of two users on one node with four GPUs, one withdrawn while it waited."""
    extra = ("AccountingStorageTRES=gres/gpu", "MinJobAge=600")
    with cluster(*LAB, nodes=NODE, partitions=PARTITION, accounting=True, extra=extra) as lab:
        began = time.time()
        ids = [_submit(lab, i) for i in range(COUNT)]
        withdrawn = lab.sbatch("--gres=gpu:4", "-t5", "--mem=100")
        lab.run("scancel", str(withdrawn))
        lab.wait_for(lambda: not lab.run("squeue", "-h", "-a").strip(), "all jobs have run", 600)
        yield lab, began, ids


def _submit(lab: SlurmLab, i: int) -> int:
    gres = f"--gres=gpu:{WIDTHS[i % 3]}"
    out = lab.run(
        *as_user(OWNER if i % 2 else PLAIN),
        *("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", gres, "-t5", "--mem=100"),
        f"--wrap=sleep {RUNS_S[i // 3 % 3]}",
    )
    return int(out.split(";")[0])


def call(lab: SlurmLab, folder: Path, *words: str) -> object:
    config = settings_file(
        folder, f'[slurm]\nconf = "{lab.conf}"\n[daemon]\ninterval_s = 5\nstate_dir = "{folder}"\n'
    )
    return CliRunner().invoke(
        app, ["--config", str(config), *words], env={"PATH": lab.search}, catch_exceptions=False
    )


def test_what_was_done_is_read(site: tuple[SlurmLab, float, list[int]], tmp_path: Path) -> None:
    lab, began, ids = site
    saved = tmp_path / "saved"
    since = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(began - 2))
    result = call(lab, tmp_path, "--collect", str(saved), "--since", since)
    assert result.exit_code == 0, result.output  # type: ignore[attr-defined]
    words = ("--site", str(saved), "--since", since, "--train", "none", "-p", "saf", "--names")
    result = call(lab, tmp_path, *words, "--json", "--split", "0.2")
    assert result.exit_code == 0, result.output  # type: ignore[attr-defined]
    reply = json.loads(result.stdout)  # type: ignore[attr-defined]
    record = reply["record"]
    assert (record["gpus"], record["nodes"]) == (4, 1)
    assert record["jobs_scored"] == COUNT
    assert record["left_out"] == {"ended while it waited (cancelled, or never could start)": 1}
    groups = reply["orders"]["saf"]["groups"]
    assert set(groups["account"]) == {"lab"}
    assert set(groups["GPUs"]) == {"1", "2-3"}
    # Slurm's own words, asked in another way
    shown = lab.run("sacct", "-n", "-X", "-P", "-j", ",".join(map(str, ids)), "-o",
                    "Submit,Start", "-a", "-S", since[:-6])  # fmt: skip
    assert len(shown.split()) == COUNT
    real = reply["real"]["whole"]["since_submit_s"]
    from datetime import datetime  # noqa: PLC0415

    waits = [
        (datetime.fromisoformat(b) - datetime.fromisoformat(a)).total_seconds()
        for a, b in (line.split("|") for line in shown.split())
    ]
    assert real == pytest.approx(sum(waits) / COUNT, abs=0.01)
    # the simulator passes no time with scheduling: it is early, and by little
    whole = reply["calibration"]["whole"]
    assert whole["rank"] > 0.7
    assert whole["off_s"] < 0.5 * max(whole["mean"]["base"], 20.0)


def test_the_live_cluster_is_asked_when_there_are_no_files(
    site: tuple[SlurmLab, float, list[int]], tmp_path: Path
) -> None:
    lab = site[0]
    report = tmp_path / "report"
    words = ("--since", "1h", "--train", "none", "-p", "saf", "--split", "0.2")
    result = call(lab, tmp_path, *words, "--report", str(report))
    assert result.exit_code == 0, result.output  # type: ignore[attr-defined]
    assert sorted(p.name for p in report.iterdir()) == ["index.html", "results.json"]
    page = (report / "index.html").read_text()
    assert "How far is the simulator off?" in page
    assert OWNER not in page.replace("mailto", "")


@pytest.mark.parametrize("most", ["1-00:00:00", "23:59:59", "00:10:00"])
def test_a_slurmdbd_that_bounds_the_time_of_a_question_is_asked_in_parts(
    site: tuple[SlurmLab, float, list[int]], tmp_path: Path, most: str
) -> None:
    """Whoever is no operator; of jobs at the edges of the parts none is lost or there twice."""
    lab, began, ids = site
    before = (lab.root / "slurmdbd.conf").read_text()
    try:
        _configured(lab, f"{before}MaxQueryTimeRange={most}\n")
        asks = " ".join(("setpriv", f"--reuid={PLAIN}", f"--regid={PLAIN}", "--clear-groups"))
        search = lab.environ()["PATH"]
        executable(tmp_path / "sacct", f'#!/bin/sh\nPATH={search} exec {asks} sacct "$@"\n')
        commands = Commands(SlurmCli(bin_dir=tmp_path, conf=lab.conf), environ={"TZ": "UTC"})
        with pytest.raises(BackendError, match="wide"):
            commands.ask("sacct", *sacct_words(began - 200_000, began + 3_600))
        rows = ask_history(commands, began - 30_000, began + 70_000)
        found = read_history(rows, "sacct", UTC)
    finally:
        _configured(lab, before)
    assert sorted(int(record.key) for record in found.records) == sorted(ids)
    assert all(record.end_s is not None for record in found.records)


def _configured(lab: SlurmLab, text: str) -> None:
    """slurmdbd with this configuration."""
    (lab.root / "slurmdbd.conf").write_text(text)
    lab.stop_slurmdbd()
    lab.start_slurmdbd()
    shown = ("sacctmgr", "show", "cluster")
    lab.wait_for(lambda: "Cluster" in lab.run(*shown, check=False), "slurmdbd")
