"""Record what a real Slurm answers to every command that rltuned runs (`make record`).

Starts the test cluster, fills it with the jobs of tests/zoo.py, and writes the raw answers to
tests/data/slurm/<release>/, with this machine's name and folders taken out. The tests then read
these answers on machines that have no Slurm.

    python -m scripts.tools.record [--search PATH] [--pyslurm PYTHON]

--search puts another Slurm's programs first in PATH.
"""

import argparse
import json
import re
import socket
import sys
import time
from pathlib import Path

from rltuned.slurm.columns import (
    NODE_COLUMNS,
    PRIORITY_LETTERS,
    WATCH_COLUMNS,
    Marks,
    read_layout,
)
from rltuned.slurm.commands import Commands, SlurmCli
from rltuned.slurm.pyslurm import CHILD, FIELDS, PROGRAM
from rltuned.slurm.pyslurm_child import PROTOCOL
from rltuned.slurm.site import parse_config
from tests.lab import SEARCH, SlurmLab, missing
from tests.zoo import ZOO_NODES, fill

HOME = Path(__file__).resolve().parents[2] / "tests" / "data" / "slurm"
MARKS = Marks(record="\x1e#recorded")


def _file(name: str) -> str:
    return f"{name}.json" if name == PROGRAM else f"{name}.txt"


def record(search: str, python: Path | None) -> Path:
    """Fill a cluster, ask everything once, write the answers; the folder they are in."""
    with SlurmLab(nodes=ZOO_NODES, search=search) as lab:
        zoo = fill(lab)
        commands = Commands(SlurmCli(conf=lab.conf), environ={"PATH": search})
        config = commands.ask("scontrol", "show", "config").stdout
        version = parse_config(config)["SLURM_VERSION"]
        usage = commands.ask("squeue", "--help").stdout
        lists_names = "--helpFormat" in usage
        names_known = commands.ask("squeue", "--helpFormat").stdout if lists_names else ""
        layout = read_layout(usage, names_known)
        names = layout.job_columns
        ask = ("squeue", "--local", "-a", layout.per_record, "-S", "i")
        taken_at = time.time()
        answers = {
            "config": config,
            "ping": commands.ask("scontrol", "ping").stdout,
            "sdiag": commands.ask("sdiag").stdout,
            "usage": usage,
            "fields": names_known,
            "squeue": commands.ask(*ask, "--noconvert", "-O", MARKS.columns(names)).stdout,
            "watch": commands.ask(*ask, "-t", "PD", "-O", MARKS.columns(WATCH_COLUMNS)).stdout,
            "sinfo": commands.ask(
                "sinfo", "--local", "-a", "-N", "-O", MARKS.columns(NODE_COLUMNS)
            ).stdout,
            "sprio": commands.ask("sprio", "--local", "-o", MARKS.letters(PRIORITY_LETTERS)).stdout,
        }
        if "Exclusive" in layout.extras:
            whole = commands.ask("scontrol", "-o", "show", "partitions").stdout
            answers["partitions"] = whole
        if python:
            asked = json.dumps({"protocol": PROTOCOL, "fields": FIELDS})
            child = ("-I", "-B", str(CHILD))
            answers["pyslurm"] = commands.call(PROGRAM, *child, feed=asked, at=python).stdout
        folder = HOME / ".".join(version.split(".")[:2])
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in answers.items():
            (folder / _file(name)).write_text(scrub(text, lab.root), newline="\n")
        facts = {"version": version, "taken_at": round(taken_at), "ids": zoo.ids}
        (folder / "zoo.json").write_text(json.dumps(facts, indent=1) + "\n")
    return folder


def scrub(text: str, root: Path) -> str:
    """Take out what belongs to this machine and not to Slurm."""
    host = socket.gethostname().split(".")[0]
    text = text.replace(str(root), "/lab")
    return re.sub(rf"\b{re.escape(host)}\b", "head", text)


def main() -> int:
    """Record, or say why not."""
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.record")
    parser.add_argument("--search", default=SEARCH)
    parser.add_argument("--pyslurm", type=Path, help="a Python that has pyslurm: record it as well")
    why = missing()
    if why:
        sys.stderr.write(why + "\n")
        return 1
    given = parser.parse_args()
    print(f"recorded {record(given.search, given.pyslurm)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
