"""Record what a real Slurm answers to every command that rltuned runs (`make record`).

Starts the test cluster, fills it with the jobs of tests/zoo.py, and writes the raw answers to
tests/data/slurm/<release>/, with this machine's name and folders taken out: tests read them on
machines that have no Slurm. --search puts another Slurm's programs first in PATH
(scripts/other-slurm.sh). --site records what a site saves for `rltuned backtest` instead, with
slurmdbd, in <release>/site/: jobs that ended in every way, were requeued, wait or run at the end.
"""

import argparse
import json
import re
import socket
import sys
import time
from pathlib import Path

from rltuned.lab.backtest.sacct_files import ask_history
from rltuned.slurm.columns import NODE_COLUMNS, PRIORITY_LETTERS, WATCH_COLUMNS, Marks, read_layout
from rltuned.slurm.pyslurm import CHILD, FIELDS, PROGRAM
from rltuned.slurm.run import Commands, SlurmCli
from rltuned.slurm.site import parse_config
from tests import accounting
from tests.lab import SEARCH, SlurmLab, missing
from tests.zoo import ZOO_NODES, fill

HOME = Path(__file__).resolve().parents[2] / "tests" / "data" / "slurm"
MARKS = Marks(record="\x1e#recorded")
GPUS = "--gres=gpu:1"


def record(search: str, python: Path | None) -> Path:
    """Fill a cluster, ask everything once, write the answers; the folder they are in."""
    with SlurmLab(nodes=ZOO_NODES, search=search) as lab:
        zoo = fill(lab)
        commands = Commands(SlurmCli(conf=lab.conf), environ={"PATH": search})
        config = commands.ask("scontrol", "show", "config")
        version = parse_config(config)["SLURM_VERSION"]
        usage = commands.ask("squeue", "--help")
        fields = commands.ask("squeue", "--helpFormat") if "--helpFormat" in usage else ""
        layout = read_layout(usage, fields)
        ask = ("squeue", "--local", "-a", layout.per_record, "-S", "i")
        taken_at = time.time()
        answers = {
            "config": config,
            "ping": commands.ask("scontrol", "ping"),
            "sdiag": commands.ask("sdiag"),
            "usage": usage,
            "fields": fields,
            "squeue": commands.ask(*ask, "--noconvert", "-O", MARKS.columns(layout.job_columns)),
            "watch": commands.ask(*ask, "-t", "PD", "-O", MARKS.columns(WATCH_COLUMNS)),
            "sinfo": commands.ask(
                "sinfo", "--local", "-a", "-N", "-O", MARKS.columns(NODE_COLUMNS)
            ),
            "sprio": commands.ask("sprio", "--local", "-o", MARKS.letters(PRIORITY_LETTERS)),
        }
        if "Exclusive" in layout.job_columns:
            answers["partitions"] = commands.ask("scontrol", "-o", "show", "partitions")
        if python:
            asked = json.dumps(FIELDS)
            child = ("-I", "-B", str(CHILD))
            answers["pyslurm"] = commands.call(PROGRAM, *child, feed=asked, at=python).stdout
        folder = _write(answers, lab)
        facts = {"version": version, "taken_at": round(taken_at), "ids": zoo.ids}
        (folder / "zoo.json").write_text(json.dumps(facts, indent=1) + "\n")
    return folder


def _write(answers: dict[str, str], lab: SlurmLab, *inner: str) -> Path:
    """The answers to the folder of their release."""
    version = parse_config(answers["config"])["SLURM_VERSION"]
    folder = HOME.joinpath(".".join(version.split(".")[:2]), *inner)
    folder.mkdir(parents=True, exist_ok=True)
    host = re.escape(socket.gethostname().split(".")[0])
    for name, text in answers.items():
        path = folder / f"{name}.{'json' if name == PROGRAM else 'txt'}"
        # without what belongs to this machine and not to Slurm
        plain = re.sub(rf"\b{host}\b", "head", text.replace(str(lab.root), "/lab"))
        path.write_text(plain, newline="\n")
    return folder


def record_site() -> Path:
    """Fill a cluster, let things happen, ask once; the folder the answers are in."""
    began = time.time()
    extra = ("AccountingStorageTRES=gres/gpu", "JobRequeue=1")
    with SlurmLab(accounting=True, extra=extra) as lab:
        ids = _happen(lab)
        environ = {"PATH": lab.search, "TZ": "UTC"}
        commands = Commands(SlurmCli(conf=lab.conf), environ=environ)
        answers = {
            "config": commands.ask("scontrol", "show", "config"),
            "nodes": commands.ask("scontrol", "-o", "show", "node"),
            "partitions": commands.ask("scontrol", "-o", "show", "partition"),
            "sacct": "\n".join(ask_history(commands, began - 60, time.time() + 60)) + "\n",
        }
        folder = _write(answers, lab, "site")
        (folder / "ids.json").write_text(json.dumps(ids, indent=1) + "\n")
    return folder


def _happen(lab: SlurmLab) -> dict[str, int]:
    ids = {
        "done": lab.sbatch(GPUS, "-c2", "-t5", wrap="sleep 2"),
        "failed": lab.sbatch("--gres=gpu:p100:2", "-t5", wrap="exit 3"),
        "array": lab.sbatch(GPUS, "-t5", "--array=1-3", wrap="sleep 1"),
        "requeued": lab.sbatch(GPUS, "-t5", wrap="sleep 300"),
        "killed": lab.sbatch(GPUS, "-t5", wrap="sleep 300"),
        "whole": lab.sbatch(GPUS, "-c1", "-t5", "--exclusive", "-pshort", wrap="sleep 1"),
        "cpu": lab.sbatch("-n2", "-t5", wrap="sleep 1"),
        "withdrawn": lab.sbatch("--hold", GPUS, "-t5"),
        "later": lab.sbatch(GPUS, "-t5", "--begin=now+1hour"),
        "bound": lab.sbatch(GPUS, "-t5", "-Cpascal", wrap="sleep 1"),
    }
    het = lab.run("sbatch", "--parsable", "--output=/dev/null", "-n1", GPUS, "-t5", ":", "-n1",
                  "-t5", "--wrap=sleep 1")  # fmt: skip
    ids["het"] = int(het.strip().split(";")[0])
    lab.wait_for(lambda: lab.state(ids["requeued"]) == "R", "a job to requeue")
    lab.wait_for(lambda: lab.state(ids["killed"]) == "R", "a job to kill")
    time.sleep(2)
    lab.scontrol("requeue", str(ids["requeued"]))
    lab.run("scancel", str(ids["killed"]))
    lab.run("scancel", str(ids["withdrawn"]))
    ids["running"] = lab.sbatch("--nodes=2", "--gres=gpu:4", "-t60", "-pgpu")
    ids["waiting"] = lab.sbatch("--nodes=2", "--gres=gpu:4", "-t60", "-pgpu")
    ids["waiting_array"] = lab.sbatch("--nodes=2", "--gres=gpu:4", "-t60", "--array=1-5")
    lab.wait_for(lambda: lab.state(ids["running"]) == "R", "a job that runs at the end")
    time.sleep(8)
    return ids


def main() -> int:
    """Record, or say why not."""
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.record")
    parser.add_argument("--search", default=SEARCH)
    parser.add_argument("--pyslurm", type=Path, help="a Python that has pyslurm: record it as well")
    parser.add_argument("--site", action="store_true", help="what a site saves for backtest")
    given = parser.parse_args()
    why = missing() or (accounting.missing() if given.site else "")
    if why:
        sys.stderr.write(why + "\n")
        return 1
    found = record_site() if given.site else record(given.search, given.pyslurm)
    print(f"recorded {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
