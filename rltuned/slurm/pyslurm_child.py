"""What pyslurm knows of the jobs, as JSON: a program of its own, run once for every look.

pyslurm is GPL-2.0-only, tied to one release of Slurm, and has leaked memory and crashed in
processes that lived long. So rltuned never imports it: slurm/pyslurm.py starts this file with the
interpreter that has it, writes one request to standard input, reads one answer from standard
output, and ends the process in time. Nothing of rltuned is imported here.

    request   {"protocol": 2, "fields": ["id", "priority", ...]}
    answer    {"protocol": 2, "pyslurm": "25.11.2", "jobs": 2}
              [7,4294901759,...]
              [8,4294901758,...]
    or        {"protocol": 2, "error": "missing" | "rpc", "detail": "...", "pyslurm": "..." | ""}

A line for each job, so that the reader need not hold them all. The fields are attributes of
pyslurm.Job, the first of them the id, one value each in every job, as pyslurm gives them: numbers,
texts, true and false, lists, objects, null.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

PROTOCOL = 2


def text_of(error: UnicodeDecodeError) -> str:
    """Bytes that are no UTF-8, which users may choose, as backslash escapes: rltuned's way."""
    return bytes(error.object).decode("utf-8", "backslashreplace")


def value_of(job: Any, name: str) -> Any:
    """One attribute of a job."""
    try:
        return getattr(job, name)
    except UnicodeDecodeError as error:
        return text_of(error)


def answer_to(request: dict[str, Any]) -> tuple[dict[str, Any], Iterator[list[Any]]]:
    """Ask through pyslurm: the first line and the jobs; expected mishaps are answers too."""
    if request.get("protocol") != PROTOCOL:
        return _none("missing", f"protocol {request.get('protocol')!r}")
    try:
        import pyslurm  # noqa: PLC0415 - whether it is there is the question
    except ImportError as error:  # also when libslurm of its release is not there
        return _none("missing", str(error))
    version = str(getattr(pyslurm, "__version__", ""))
    fields = request["fields"]
    if not hasattr(pyslurm, "Jobs"):
        return _none("missing", f"pyslurm {version} has no class Jobs", version)
    lacking = [name for name in fields if not hasattr(pyslurm.Job, name)]
    if lacking:
        return _none("missing", f"pyslurm {version}: a Job has no {', '.join(lacking)}", version)
    try:
        jobs = pyslurm.Jobs.load()
    except pyslurm.RPCError as error:
        return _none("rpc", str(error), version)
    rows = ([value_of(job, name) for name in fields] for job in jobs.values())
    return {"pyslurm": version, "jobs": len(jobs)}, rows


def _none(error: str, detail: str, version: str = "") -> tuple[dict[str, Any], Iterator[list[Any]]]:
    return {"error": error, "detail": detail, "pyslurm": version}, iter(())


def main() -> int:
    """One request, one answer. 0 = answered, whatever the answer."""
    # pyslurm prints for itself at times: what is printed must not get into the answer
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    first, rows = answer_to(json.loads(sys.stdin.read()))
    with out:
        print(json.dumps({"protocol": PROTOCOL, **first}), file=out)
        for row in rows:
            print(json.dumps(row, separators=(",", ":")), file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
