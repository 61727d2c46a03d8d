"""`rltuned explain`: what rltuned sees and thinks of one job."""

import json
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from rltuned.cli import flags
from rltuned.cli.asking import PLAYED_S, ask_about, is_private, old
from rltuned.cli.explained import explained, starts_of
from rltuned.cli.history import lines_of
from rltuned.cli.plan import ALONE, NOT_KNOWN, Look, look
from rltuned.cli.world import open_world
from rltuned.core.other_request import OtherRequest
from rltuned.core.refusals import BY_LABEL, Refusal
from rltuned.daemon.documents import find_job, of_task
from rltuned.daemon.what_if import other_of
from rltuned.domain.units import JobId
from rltuned.errors import BackendError
from rltuned.journal.queries import JobChange
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.text import between, counted, escaped, span, trusted, when

app = typer.Typer()

_BOUNDS = {
    "clip": "order.clip: no delay is longer than so many times its limit and size, and its share "
    "of the backlog",
    "max_delay": "order.max_delay_s",
    "room": "what its own priority has room for: below 1 slurmctld keeps no order",
    "deadline": "its deadline, which is near: it stands where Slurm alone would put it",
    "heterogeneous": "the heterogeneous job that it is part of: it stands where Slurm alone would "
    "put it, and never earlier",
    "scope": "one of its partitions, which rltuned does not manage: it stands where Slurm alone "
    "would put it, and never earlier",
}
_ADVICE = "By the speeds in its comment jobs end soonest on average with {} nodes for it."
OTHER_NOT_KNOWN = (
    "the journal is private, so what rltuned holds and what another request would change is not "
    "known here; {}"
)
_OLD_S = 60.0
_PREEMPTION = "Preemption is on here, and the forecast knows nothing of it."


@app.command()
def explain(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="Its number, or 12_3 of an array.")],
    *,
    config: flags.ConfigOption = None,
    backend: flags.WorldOption = flags.BackendChoice.SLURM,
    policy: flags.PolicyOption = None,
    seed: flags.SeedOption = 0,
    limit: Annotated[
        str | None, typer.Option(help="Also: when with this time limit, as sbatch takes it.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="Also: when with so many GPUs.", min=0)] = None,
    as_json: flags.JsonOption = False,
) -> None:
    """Show when a job is expected to start, where it stands, why, and what rltuned would do.

    Exit codes: 0 = the job was found; 1 = it is not in the queue, or the cluster gave no
    usable answer; 2 = settings or model cannot be used.
    """
    other = _other(limit, gpus)
    loaded = flags.in_force(config, ("policy.name", policy, "--policy"))
    is_slurm = backend is flags.BackendChoice.SLURM
    private = is_slurm and is_private(loaded.settings.daemon.state_dir)
    document, why = None, ""
    if is_slurm and (private or policy is None):
        document, why = _answered(loaded, {"job": job, "limit": limit, "gpus": gpus})
        if document is None:
            known = NOT_KNOWN if other is None else OTHER_NOT_KNOWN
            flags.warn((known if private else ALONE).format(why))
        else:
            flags.warn_of(old(document, loaded.settings))
    if document is None:
        document = _alone(look(loaded, backend, seed, is_private=private), job, other, private)
    elif not private and document["state"] == "PENDING":
        document["starts"] = _by_slurm(loaded, document["job_id"])
    if as_json:
        flags.say(json.dumps(document, indent=2, allow_nan=False))
        return
    for line in in_words(document):
        flags.say(line)


def _alone(seen: Look, job: str, other: OtherRequest | None, is_private: bool) -> dict[str, Any]:
    """What is known without the daemon. Raises Exit: there is no such job."""
    document = explained(seen, job, is_private=is_private)
    if document is None:
        flags.warn(f"{seen.decision.snapshot.cluster} shows no pending or running job {job}")
        raise typer.Exit(1)
    waits = find_job(seen.decision.snapshot, job)
    if other is not None and waits is not None and not is_private:
        told = seen.what_if(waits, other)
        played = told["what_if"]
        document |= {**told, "what_if": played and of_task(played, waits, job)}
    return document


def _by_slurm(loaded: Loaded, job_id: JobId) -> dict[str, Any] | None:
    """Slurm's own plan of a job that the daemon has explained; None = Slurm cannot be asked."""
    try:
        slurm = open_world(flags.BackendChoice.SLURM).backend(loaded)
    except BackendError:
        return None
    return starts_of(slurm, job_id) if isinstance(slurm, SlurmBackend) else None


def _answered(loaded: Loaded, asked: Mapping[str, object]) -> tuple[dict[str, Any] | None, str]:
    """What the daemon answers to this user; None = it does not, and why."""
    given = {name: value for name, value in asked.items() if value is not None}
    return ask_about(loaded.settings, f"/job.json?{urlencode(given)}", "job", PLAYED_S)


def _other(limit: str | None, gpus: int | None) -> OtherRequest | None:
    try:
        return other_of(limit, None if gpus is None else str(gpus))
    except ValueError as error:
        raise typer.BadParameter(f"--limit: {error}") from None


def in_words(document: dict[str, Any]) -> list[str]:
    """The same for people."""
    if document["state"] == "RUNNING":
        runs = f"{_name(document)} has run for {span(document['running_s'])}."
        return [runs, *_changes(document)]
    if document["state"] == "UNREADABLE":
        return [f"{_name(document)}: {_unreadable(document)}", *_changes(document)]
    name = f"{_name(document)} ({', '.join(document['partitions'])})"
    reason = escaped(document["reason"]) or "none"
    lines = [
        f"{name}: {_start_of(document)}.",
        *_what_ifs(document),
        *_age(document.get("expected_age_s")),
        *([_PREEMPTION] if document.get("expected_start") and document.get("preemption") else []),
        f"It has waited {span(document['waited_s'])}; Slurm's reason: {reason}.",
        f"Slurm's priority: {document['current_priority']}.",
        *_in_queue(document),
        f"It asks for {_amounts(document['request'])}.",
        *_changed(document),
        *_expected(document["run_time"]),
    ]
    lines += _group(document.get("group"))
    if document["deadline_at"] is not None:
        lines.append(f"Its deadline is {when(document['deadline_at'])}.")
    if document["changed_by_rltuned"] is not None:
        was = document["changed_by_rltuned"]
        undo = f"`rltuned restore --job {document['job_id']}`"
        lines.append(f"rltuned set its {was['field']} to {was['value']}; {undo} undoes.")
    lines += [*_promised(document.get("sla")), *_off_block(document.get("off_block"))]
    if document.get("is_private"):
        return [*lines, *_start(document)]
    if document.get("only_observed"):
        return [*lines, "The daemon only observes: it orders nothing.", *_changes(document)]
    return [*lines, *_decided(document), *_start(document), *_changes(document)]


def _decided(document: dict[str, Any]) -> list[str]:
    """What rltuned makes of a waiting job."""
    if document["rank_wished"] is None:
        refusal = document["refusal"] or ""
        if document["unreadable"]:
            return [_unreadable(document)]
        return [f"rltuned leaves it alone: {_refused(refusal)}."]
    before, wished = document["rank_before"], document["rank_wished"]
    policy = trusted(document["policy"], document.get("trust"))  # an older daemon has none
    lines = [
        f"{policy}: {document['sentence']}.",
        f"By Slurm's own order it is place {before}; rltuned wants place {wished}.",
        f"Others may overtake it until {when(document['delay']['overtaken_until'])}.",
        _wish(document),
    ]
    if document["refusal"]:
        lines.append(f"Not all at once: {_refused(document['refusal'])}.")
    lines += [f"Bounded by {_BOUNDS[name]}." for name in document.get("bounds") or ()]
    lines += _of_verdict(document["verdict"])
    shares = document["placement"] or ()
    lines += [f"It would fit on {s['node']} with {counted(s['gpus'], 'GPU')} now." for s in shares]
    return lines


def _wish(document: dict[str, Any]) -> str:
    """What a cycle that may write does to its priority."""
    current, proposed = document["current_priority"], document["proposed_priority"]
    if document["changes"]:
        return f"A cycle that may write sets its priority to {document['planned_priority']}."
    if proposed == current:
        return f"Its priority stays {current}, as rltuned wants it."
    return f"Its priority stays {current}: the wish, {proposed}, is too near to be written."


def _in_queue(document: dict[str, Any]) -> list[str]:
    """`Place 113 of 487 in Slurm's queue; 7 other jobs have its priority: ...`"""
    rank, ties = document.get("rank_now"), document.get("ties") or 1
    if rank is None:
        return []
    said = f"Place {rank} of {document['waiting_jobs']} in Slurm's queue"
    if ties > 1:
        others = counted(ties - 1, "other job")
        said += f"; {others} with its priority, the lower number first"
    return [f"{said}."]


def _refused(reason: str) -> str:
    return BY_LABEL[reason].sentence if reason in BY_LABEL else reason


def _age(age_s: float | None) -> list[str]:
    is_told = age_s is not None and age_s >= _OLD_S
    return [f"The forecast is {span(age_s)} old."] if is_told and age_s is not None else []


def _changed(document: dict[str, Any]) -> list[str]:
    if document["request_changed_at"] is None:
        return []
    said = "What it asks for has changed since rltuned wrote its number; the next cycle that may "
    return [said + "write sets the one for what it asks now."]


def _expected(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    low, high = span(found["low_s"]), span(found["high_s"])
    ends = found["ends"]
    known = f"after {counted(ends, 'job')} of its user" if ends else "its user is new"
    return [f"It is expected to run {span(found['mean_s'])} ({low} to {high}; {known})."]


def _group(group: dict[str, Any] | None) -> list[str]:
    if group is None:
        return []
    step = f"step {group['step']} of {group['depth']} of" if group["step"] else "in"
    held = [f"{p['job_id']} ({p['state']}, {_left(p['ends_in_s'])})" for p in group["waits_for"]]
    waits = f"; waits for {', '.join(held)}" if held else ""
    critical = "; on the critical path" if group["critical"] else ""
    end = "unknown" if group["end_at"] is None else when(group["end_at"])
    lines = [
        f"It is {step} a group of {group['jobs']} ({group['group']}){waits}{critical}.",
        f"The group ends, if no job of it waits in the queue: {end}.",
    ]
    if not group["understood"]:
        lines.append("Not all of the group's dependencies are understood.")
    return lines


def _left(seconds: float | None) -> str:
    return "end unknown" if seconds is None else f"about {span(seconds)} left"


def _promised(sla: dict[str, Any] | None) -> list[str]:
    if sla is None:
        return []
    left_s, wait = sla["left_s"], span(sla["max_wait_s"])
    how = f"{span(left_s)} left" if left_s >= 0 else f"{span(-left_s)} over it"
    return [f"Its class {sla['class']} is promised a wait of at most {wait}: {how}."]


def _off_block(off: dict[str, Any] | None) -> list[str]:
    if off is None:
        return []
    until, name = when(off["until"]), off["partition"]
    return [f"It is not delayed: partition {name} measures Slurm's own order until {until}."]


def _name(document: dict[str, Any]) -> str:
    """By its number, and as squeue names it where that is another name."""
    number, address = str(document["job_id"]), document["address"]
    return f"Job {number}" if address == number else f"Job {number}, {address}"


def _unreadable(document: dict[str, Any]) -> str:
    return (
        f"rltuned leaves it alone: {Refusal.UNREADABLE.sentence} ({document['unreadable']}). "
        f"`rltuned restore --job {document['job_id']}` restores what rltuned changed of it."
    )


def _start_of(document: dict[str, Any]) -> str:
    """`expected to start 14:00 to 17:30 today; 12th of 212`."""
    at = document.get("expected_start")
    if at is None:
        return f"no start is expected: {document.get('expected_why') or 'nothing is known of it'}"
    return f"expected to start {_times(document)}; {_place(document)}"


def _what_ifs(document: dict[str, Any]) -> list[str]:
    """`With a limit of 2h00m: 09:40 to 11:00 today; 3rd of 212.`"""
    if "what_if" not in document:
        return []
    found = document["what_if"]
    if found is None:
        return [f"What another request would change is not known: {document['what_if_why']}."]
    limit_s, gpus = found["limit_s"], found["gpus"]
    asked = ["no time limit"] if found["unlimited"] else []
    asked += [] if limit_s is None else [f"a limit of {span(limit_s)}"]
    asked += [] if gpus is None else [counted(gpus, "GPU")]
    at = found["expected_start"]
    start = found["expected_why"] if at is None else f"{_times(found)}; {_place(found)}"
    return [f"With {' and '.join(asked)}: {start}."]


def _times(document: dict[str, Any]) -> str:
    at = document["expected_start"]
    said = between(at["low_s"], at["high_s"], document["expected_at"])
    return f"{said} (by time limits)" if document["expected_by_limits"] else said


def _place(document: dict[str, Any]) -> str:
    said = f"{ordinal(document['line_place'])} of {document['line_jobs']}"
    left_out = document.get("expected_left_out")
    if not left_out:
        return said
    return f"{said}; it may be later: {counted(left_out, 'task')} of arrays ahead not played"


def ordinal(number: int) -> str:
    """`1st`, `12th`, `23rd`."""
    last = 0 if number // 10 % 10 == 1 else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


def _start(document: dict[str, Any]) -> list[str]:
    starts = document.get("starts")
    if starts is None:
        return []
    at = starts["slurm_expects_at"]
    slurm = f"unknown ({starts['slurm_unknown']})" if at is None else when(at)
    return [
        f"When it may start, by Slurm's own plan: {slurm}.",
        *([_ADVICE.format(starts["advised_nodes"])] if starts["advised_nodes"] else []),
    ]


def _changes(document: dict[str, Any]) -> list[str]:
    if "history" not in document:
        return []
    if document["history"] is None:
        return [f"Changes so far: unknown ({document['history_unknown']})."]
    if not document["history"]:
        return ["Changes so far: none."]
    changes = [JobChange(**change) for change in document["history"]]
    return ["Changes so far:", *(f"  {line}" for line in lines_of(changes))]


def _of_verdict(verdict: dict[str, Any] | None) -> list[str]:
    if verdict is None:
        return []
    return [f"Placed together with the others it {verdict['why']}."]


def _amounts(request: dict[str, Any]) -> str:
    types = "/".join(request["gpu_types"])
    gpus = counted(request["gpus"], f"{types} GPU" if types else "GPU")
    most = request["nodes_most"]
    nodes = f", on {request['nodes']} to {most} nodes (at least this much)" if most else ""
    return f"{gpus}, {counted(request['cpus'], 'CPU')}, {request['mem_mib']} MiB{nodes}"
