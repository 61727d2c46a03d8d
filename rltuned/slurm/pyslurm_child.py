"""What pyslurm knows of the jobs, as JSON: a program of its own, run once for every look.

pyslurm is GPL-2.0-only, tied to one release of Slurm, and has leaked memory and crashed in
processes that lived long. So rltuned never imports it: slurm/pyslurm.py starts this file with the
interpreter that has it. Nothing of rltuned is imported here.

    standard input    ["id", "priority", ...]: attributes of pyslurm.Job
    standard output   {"pyslurm": "25.11.2", "jobs": 2}
                      [7,4294901759,...]
                      [8,4294901758,...]
    or                {"error": "missing" | "rpc", "detail": "...", "pyslurm": "..." | ""}

A line for each job, so that the reader need not hold them all, with its attributes as pyslurm gives
them: numbers, texts, true and false, lists, objects, null.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any


def value_of(job: Any, name: str) -> Any:
    """One attribute of a job."""
    try:
        return getattr(job, name)
    except UnicodeDecodeError as error:
        # bytes that are no UTF-8, which users may choose, as backslash escapes: rltuned's way
        return bytes(error.object).decode("utf-8", "backslashreplace")


def answer_to(fields: list[str]) -> tuple[dict[str, Any], Iterator[list[Any]]]:
    """Ask through pyslurm: the first line and the jobs; expected mishaps are answers too."""
    version, error = "", "missing"
    try:
        import pyslurm  # noqa: PLC0415 - whether it is there is the question

        version = str(getattr(pyslurm, "__version__", ""))
        lacking = [name for name in fields if not hasattr(pyslurm.Job, name)]
        if lacking or not hasattr(pyslurm, "Jobs"):
            why = f"a Job has no {', '.join(lacking)}" if lacking else "has no class Jobs"
            raise ImportError(f"pyslurm {version}: {why}")  # noqa: TRY301 - another pyslurm
        error = "rpc"
        jobs = pyslurm.Jobs.load()
    except ImportError as mishap:  # also when libslurm of its release is not there
        return {"error": error, "detail": str(mishap), "pyslurm": version}, iter(())
    except pyslurm.RPCError as mishap:
        return {"error": error, "detail": str(mishap), "pyslurm": version}, iter(())
    rows = ([value_of(job, name) for name in fields] for job in jobs.values())
    return {"pyslurm": version, "jobs": len(jobs)}, rows


def main() -> int:
    """One request, one answer. 0 = answered, whatever the answer."""
    # pyslurm prints for itself at times: what is printed must not get into the answer
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    first, rows = answer_to(json.loads(sys.stdin.read()))
    with out:
        print(json.dumps(first), file=out)
        for row in rows:
            print(json.dumps(row, separators=(",", ":")), file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
