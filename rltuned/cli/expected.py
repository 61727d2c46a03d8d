"""The expected start of one job: in words, and what another request would change."""

import math
from dataclasses import replace
from typing import Any

from rltuned.cli.plan import Look
from rltuned.core.hindsight import Scales
from rltuned.core.placement import ceil_div
from rltuned.core.starts import expectation
from rltuned.daemon.documents import find_job
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request
from rltuned.text import between, counted, span


def expected(document: dict[str, Any]) -> str:
    """`expected to start 14:00 to 17:30 today; 12th of 212`."""
    at = document.get("expected_start")
    if at is None:
        return f"no start is expected: {document.get('expected_why') or 'nothing is known of it'}"
    return f"expected to start {_times(document)}; {_place(document)}"


def what_ifs(document: dict[str, Any]) -> list[str]:
    """`With a limit of 2h00m: 09:40 to 11:00 today; 3rd of 212.`"""
    found = document.get("what_if")
    if found is None:
        return []
    limit_s, gpus = found["limit_s"], found["gpus"]
    asked = [] if limit_s is None else [f"a limit of {span(limit_s)}"]
    asked += [] if gpus is None else [counted(gpus, "GPU")]
    at = found["expected_start"]
    start = found["expected_why"] if at is None else f"{_times(found)}; {_place(found)}"
    return [f"With {' and '.join(asked)}: {start}."]


def _times(document: dict[str, Any]) -> str:
    at = document["expected_start"]
    said = between(at["low_s"], at["high_s"], document["expected_at"])
    return f"{said} (by time limits)" if document["expected_by_limits"] else said


def _place(document: dict[str, Any]) -> str:
    return f"{ordinal(document['line_place'])} of {document['line_jobs']}"


def ordinal(number: int) -> str:
    """`1st`, `12th`, `23rd`."""
    last = 0 if number // 10 % 10 == 1 else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


def what_if(look: Look, asked: str, limit_s: float | None, gpus: int | None) -> dict[str, Any]:
    """When the waiting job would start, and where it would stand, with another request. CPUs and
    memory go with the GPUs.
    """
    job = find_job(look.decision.snapshot, asked)
    if job is None:
        raise LookupError(f"no pending job {asked}")
    other = look.with_request(job, _changed(job.request, limit_s, gpus))
    found = expectation(other.played(Scales()), job.job_id)
    known = None if limit_s is None or math.isinf(limit_s) else limit_s
    return {"limit_s": known, "gpus": gpus, **found}


def _changed(request: Request, limit_s: float | None, gpus: int | None) -> Request:
    if limit_s is not None:
        request = replace(request, time_limit_s=limit_s)
    before = request.total
    if gpus is None or gpus == before.gpus:
        return request
    cpus, mem_mib = (
        ceil_div(amount * gpus, before.gpus) if before.gpus else amount
        for amount in (before.cpus, before.mem_mib)
    )
    total = Resources(gpus, max(1, cpus), mem_mib)
    return replace(request, total=total, nodes=None, nodes_most=None, expected=None)
