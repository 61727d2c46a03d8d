"""Record what a site saves for `rltuned backtest` from a real Slurm with slurmdbd.

Writes config.txt, nodes.txt, partitions.txt and sacct.txt to tests/data/slurm/<release>/site/: jobs
that ended well, failed, ran out of time, were cancelled waiting and running, were requeued, arrays,
a heterogeneous job, and some that wait or run at the end.

    python -m scripts.tools.record_site       or through scripts/other-slurm.sh run DIR ...
"""

import json
import os
import sys
import time
from pathlib import Path

from rltuned.slurm.commands import Commands, SlurmCli
from rltuned.slurm.sacct import ask_history
from rltuned.slurm.site import parse_config
from scripts.tools.record import HOME, scrub
from tests import accounting
from tests.lab import SEARCH, SlurmLab, missing

GPUS = "--gres=gpu:1"


def record() -> Path:
    """Fill a cluster, let things happen, ask once; the folder the answers are in."""
    began = time.time()
    extra = ("AccountingStorageTRES=gres/gpu", "JobRequeue=1")
    with SlurmLab(accounting=True, extra=extra) as lab:
        ids = _happen(lab)
        environ = {"PATH": lab.search, "TZ": "UTC"}
        commands = Commands(SlurmCli(conf=lab.conf), environ=environ)
        answers = {
            "config": commands.ask("scontrol", "show", "config").stdout,
            "nodes": commands.ask("scontrol", "-o", "show", "node").stdout,
            "partitions": commands.ask("scontrol", "-o", "show", "partition").stdout,
            "sacct": "\n".join(ask_history(commands, began - 60, time.time() + 60)) + "\n",
        }
        version = parse_config(answers["config"])["SLURM_VERSION"]
        folder = HOME / ".".join(version.split(".")[:2]) / "site"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in answers.items():
            (folder / f"{name}.txt").write_text(scrub(text, lab.root), newline="\n")
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
    lab.wait_for(lambda: lab.state(ids["requeued"]) == "R", 30, "a job to requeue")
    lab.wait_for(lambda: lab.state(ids["killed"]) == "R", 30, "a job to kill")
    time.sleep(2)
    lab.scontrol("requeue", str(ids["requeued"]))
    lab.run("scancel", str(ids["killed"]))
    lab.run("scancel", str(ids["withdrawn"]))
    ids["running"] = lab.sbatch("--nodes=2", "--gres=gpu:4", "-t60", "-pgpu")
    ids["waiting"] = lab.sbatch("--nodes=2", "--gres=gpu:4", "-t60", "-pgpu")
    ids["waiting_array"] = lab.sbatch("--nodes=2", "--gres=gpu:4", "-t60", "--array=1-5")
    lab.wait_for(lambda: lab.state(ids["running"]) == "R", 60, "a job that runs at the end")
    time.sleep(8)
    return ids


def main() -> int:
    """Record, or say why not."""
    why = missing() or accounting.missing()
    if why:
        sys.stderr.write(why + "\n")
        return 1
    os.environ.setdefault("PATH", SEARCH)
    print(f"recorded {record()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
