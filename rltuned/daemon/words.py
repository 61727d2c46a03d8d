"""The sentences of one job's document, for `rltuned explain` and the job's page, and the lines of
its history. Times in a document are numbers; here they become words.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from rltuned.core.refusals import BY_LABEL, Refusal
from rltuned.journal.cycles import JobChange
from rltuned.journal.owned import TAKEN_OVER
from rltuned.text import between, counted, escaped, span, trusted, when

BOUNDS: Final = {
    "clip": "its own time limit: no delay is longer than that, for its size, and its share of the "
    "backlog",
    "max_delay": "order.max_delay_s",
    "room": "what its own priority has room for: below 1 slurmctld keeps no order",
    "deadline": "its deadline, which is near: it stands where Slurm alone would put it",
    "heterogeneous": "the heterogeneous job that it is part of: it stands where Slurm alone would "
    "put it, and never earlier",
    "scope": "one of its partitions, which rltuned does not manage: it stands where Slurm alone "
    "would put it, and never earlier",
}
_OLD_S: Final = 60.0

Document = dict[str, Any]


def in_words(job: Document) -> list[str]:
    """What Look.explain says of a job, the expected start first."""
    number, address = str(job["job_id"]), job["address"]
    name = f"Job {number}" if address == number else f"Job {number}, {address}"
    unreadable = (
        f"rltuned leaves it alone: {Refusal.UNREADABLE.sentence} ({job.get('unreadable')}). "
        f"`rltuned restore --job {number}` restores what rltuned changed of it."
    )
    past = list(_history(job))
    if job["state"] == "RUNNING":
        return [f"{name} has run for {span(job['running_s'])}.", *past]
    if job["state"] == "UNREADABLE":
        return [f"{name}: {unreadable}", *past]
    lines = [*_expected(name, job), *_asked(job), *_situation(job)]
    if job.get("is_private"):
        return [*lines, *_by_slurm(job)]
    if job["only_observed"]:
        return [*lines, "rltuned only observes: it orders nothing.", *past]
    if job["rank_wished"] is not None:
        lines += _decided(job)
    elif job["unreadable"]:
        lines.append(unreadable)
    else:
        lines.append(f"rltuned leaves it alone: {_refusal(job)}.")
    return [*lines, *_by_slurm(job), *past]


def _refusal(job: Document) -> str:
    label = job["refusal"]
    return BY_LABEL[label].sentence if label in BY_LABEL else label or ""


def _expected(name: str, job: Document) -> Iterator[str]:
    """`expected to start 14:00 to 17:30 today; 12th of 212`, and with another request."""
    yield f"{name} ({', '.join(job['partitions'])}): {_start(job)}."
    if "what_if" in job and (found := job["what_if"]) is None:
        yield f"What another request would change is not known: {job['what_if_why']}."
    elif "what_if" in job:
        asked = ["no time limit"] if found["unlimited"] else []
        asked += [] if found["limit_s"] is None else [f"a limit of {span(found['limit_s'])}"]
        asked += [] if found["gpus"] is None else [counted(found["gpus"], "GPU")]
        yield f"With {' and '.join(asked)}: {_start(found)}."
    age_s = job["expected_age_s"]
    if age_s is not None and age_s >= _OLD_S:
        yield f"The forecast is {span(age_s)} old."
    if job["expected_start"] and job["preemption"]:
        yield "Preemption is on here, and the forecast knows nothing of it."


def _start(told: Document) -> str:
    at = told["expected_start"]
    if at is None:
        return f"no start is expected: {told['expected_why']}"
    said = f"expected to start {between(at['low_s'], at['high_s'], told['expected_at'])}"
    said += " (by time limits)" if told["expected_by_limits"] else ""
    said += f"; {ordinal(told['line_place'])} of {told['line_jobs']}"
    if left_out := told.get("expected_left_out"):
        said += f"; it may be later: {counted(left_out, 'task')} of arrays ahead not played"
    return said


def ordinal(number: int) -> str:
    """`1st`, `12th`, `23rd`."""
    last = 0 if number // 10 % 10 == 1 else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


def _asked(job: Document) -> Iterator[str]:
    """How long it has waited, where it stands in Slurm's queue, and what it asks for."""
    reason = escaped(job["reason"]) or "none"
    yield f"It has waited {span(job['waited_s'])}; Slurm's reason: {reason}."
    yield f"Slurm's priority: {job['current_priority']}."
    if (rank := job["rank_now"]) is not None:
        others = counted(job["ties"] - 1, "other job")
        same = f"; {others} with its priority, the lower number first" if job["ties"] > 1 else ""
        yield f"Place {rank} of {job['waiting_jobs']} in Slurm's queue{same}."
    request = job["request"]
    types, most = "/".join(request["gpu_types"]), request["nodes_most"]
    gpus = counted(request["gpus"], f"{types} GPU" if types else "GPU")
    nodes = f", on {request['nodes']} to {most} nodes (at least this much)" if most else ""
    limit = ", no time limit" if job["limit_s"] is None else f", limit {span(job['limit_s'])}"
    cpus = counted(request["cpus"], "CPU")
    yield f"It asks for {gpus}, {cpus}, {request['mem_mib']} MiB{limit}{nodes}."
    if job["request_changed_at"] is not None:
        yield (
            "What it asks for has changed since rltuned wrote its number; the next cycle that may "
            "write sets the one for what it asks now."
        )
    if (found := job["run_time"]) is not None:
        ends, low, high = found["ends"], span(found["low_s"]), span(found["high_s"])
        known = f"after {counted(ends, 'job')} of its user" if ends else "its user is new"
        yield f"It is expected to run {span(found['mean_s'])} ({low} to {high}; {known})."


def _situation(job: Document) -> Iterator[str]:
    """Its group, and what else holds it where it is."""
    if (group := job["group"]) is not None:
        step = f"step {group['step']} of {group['depth']} of" if group["step"] else "in"
        held = []
        for parent in group["waits_for"]:
            left_s = parent["ends_in_s"]
            left = "end unknown" if left_s is None else f"about {span(left_s)} left"
            held.append(f"{parent['job_id']} ({parent['state']}, {left})")
        waits = f"; waits for {', '.join(held)}" if held else ""
        critical = "; on the critical path" if group["critical"] else ""
        end = "unknown" if group["end_at"] is None else when(group["end_at"])
        yield f"It is {step} a group of {group['jobs']} ({group['group']}){waits}{critical}."
        yield f"The group ends, if no job of it waits in the queue: {end}."
        if not group["understood"]:
            yield "Not all of the group's dependencies are understood."
    if job["deadline_at"] is not None:
        yield f"Its deadline is {when(job['deadline_at'])}."
    if (was := job["changed_by_rltuned"]) is not None:
        undo = f"`rltuned restore --job {job['job_id']}`"
        yield f"rltuned set its {was['field']} to {was['value']}; {undo} undoes."
    if (sla := job["sla"]) is not None:
        left_s, wait = sla["left_s"], span(sla["max_wait_s"])
        how = f"{span(left_s)} left" if left_s >= 0 else f"{span(-left_s)} over it"
        yield f"Its class {sla['class']} is promised a wait of at most {wait}: {how}."
    if (off := job["off_block"]) is not None:
        until, name = when(off["until"]), off["partition"]
        yield f"It is not delayed: partition {name} measures Slurm's own order until {until}."


def _decided(job: Document) -> Iterator[str]:
    """What rltuned makes of a job that it orders."""
    yield f"{trusted(job['policy'], job['trust'])}: {job['sentence']}."
    wished = job["rank_wished"]
    yield f"By Slurm's own order it is place {job['rank_before']}; rltuned wants place {wished}."
    yield f"Others may overtake it until {when(job['delay']['overtaken_until'])}."
    current, proposed = job["current_priority"], job["proposed_priority"]
    if job["changes"]:
        yield f"A cycle that may write sets its priority to {job['planned_priority']}."
    elif proposed == current:
        yield f"Its priority stays {current}, as rltuned wants it."
    else:
        yield f"Its priority stays {current}: the wish, {proposed}, is too near to be written."
    if job["refusal"]:
        yield f"Not all at once: {_refusal(job)}."
    yield from (f"Bounded by {BOUNDS[name]}." for name in job["bounds"] or ())
    if job["verdict"] is not None:
        yield f"Placed together with the others it {job['verdict']['why']}."
    for share in job["placement"] or ():
        yield f"It would fit on {share['node']} with {counted(share['gpus'], 'GPU')} now."


def _by_slurm(job: Document) -> Iterator[str]:
    starts = job.get("starts")
    if starts is None:
        return
    at = starts["slurm_expects_at"]
    slurm = f"unknown ({starts['slurm_unknown']})" if at is None else when(at)
    yield f"When it may start, by Slurm's own plan: {slurm}."
    if starts["advised_nodes"]:
        yield (
            "By the speeds in its comment jobs end soonest on average with "
            f"{starts['advised_nodes']} nodes for it."
        )


# -- History ---------------------------------------------------------------------------------------


def _history(job: Document) -> Iterator[str]:
    if job["history"] is None:
        yield f"Changes so far: unknown ({job['history_unknown']})."
    elif not job["history"]:
        yield "Changes so far: none."
    else:
        yield "Changes so far:"
        changes = [JobChange(**change) for change in job["history"]]
        yield from (f"  {line}" for line in lines_of(changes))


def lines_of(changes: Iterable[JobChange]) -> Iterator[str]:
    """Changes, under a line for each record."""

    def record(row: JobChange) -> tuple[str, int, float]:
        return row.cluster, row.job_id, row.submitted_at

    for (cluster, _, submitted_at), found in groupby(sorted(changes, key=record), key=record):
        rows = list(found)
        yield f"job {rows[-1].address} of {cluster}, submitted {when(submitted_at)}"
        for row in rows:
            detail = f" ({row.detail})" if row.detail else ""
            result = f"{row.result}{detail}" if row.result else "unknown (the process ended before)"
            yield f"  {when(row.at)}  {what(row)}: {result}{_by(row)}"


def what(row: JobChange) -> str:
    """What changed, from which value to which."""
    if row.new is not None:
        return f"{row.field} {row.old} -> {row.new}"
    nice = f", nice {row.nice} set again" if row.nice else ""
    return f"priority {row.old} -> released{nice}"


def _by(row: JobChange) -> str:
    if row.snapshot is None:
        return "" if row.result == TAKEN_OVER else "; by restore"
    who = row.policy if row.mode == "live" else f"mode {row.mode}" if row.mode else ""
    text = f"; cycle {row.cycle}" + (f" by {who}" if who else "")
    if row.reason is None:
        return text
    reason = row.reason
    return f"{text}: {reason['why']}; place {reason['rank_before']} -> {reason['rank_after']}"
