"""`rltuned explain`: what rltuned sees and thinks of one job."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from rltuned.cli import flags
from rltuned.cli.asking import PLAYED_S, ask_about, is_private, old, open_world
from rltuned.cli.history import lines_of
from rltuned.cli.plan import ALONE, NOT_KNOWN, Look, look
from rltuned.core.line import advised_nodes
from rltuned.core.refusals import BY_LABEL, Refusal
from rltuned.core.starts import NEVER, expectation
from rltuned.daemon.documents import (
    OF_NUMBERS,
    explanation,
    find_job,
    of_task,
    past_of,
    situation,
)
from rltuned.daemon.what_if import OtherRequest, other_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId
from rltuned.errors import BackendError, SnapshotError
from rltuned.journal.cycles import JobChange
from rltuned.journal.store import FILE_NAME
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.text import between, counted, escaped, span, trusted, when

app = typer.Typer()

_BOUNDS = {
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
OTHER_NOT_KNOWN = (
    "the journal is private, so what rltuned holds and what another request would change is not "
    "known here; {}"
)
_OLD_S = 60.0


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
        slurm = open_world(flags.BackendChoice.SLURM)[1](loaded)
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


# -- the document --------------------------------------------------------------------------------


def explained(made: Look, asked: str, *, is_private: bool = False) -> dict[str, Any] | None:
    """All that is known of one job, for JSON; None = the cluster shows no such job. is_private: the
    journal is, and which part of a priority is rltuned's is not known; nor is what follows from it.

    The journal, and Slurm once more, are asked only for a job that squeue shows to this user, so
    that no user learns more of a job than Slurm shows.
    """
    decision = made.decision
    seen = decision.snapshot
    document = explanation(asked, seen, decision.context, decision)
    if document is None:
        return None
    document |= _past(made, document)
    job = find_job(seen, asked)
    if job is None:
        return document
    told = expectation(made.expected(job.job_id), job.job_id, seen.taken_at)
    document |= of_task(told, job, asked)
    refusal = document["refusal"]
    document |= situation(job, seen, made.rig.knobs, made.groups, decision, refusal=refusal)
    if is_private:
        document |= {"is_private": True, "bounds": None, **dict.fromkeys(OF_NUMBERS)}
        if document["expected_why"] == NEVER:  # PrivateData may hide what runs
            document["expected_why"] = "Slurm does not show this user what runs"
    return {**document, "starts": _starts(made, job)}


def _starts(made: Look, job: PendingJob) -> dict[str, Any]:
    """When Slurm plans to start it, and on how many nodes of a range it ends soonest."""
    if not isinstance(made.rig.backend, SlurmBackend):
        why = "the built-in cluster makes no plan"
        return {"slurm_expects_at": None, "slurm_unknown": why, "advised_nodes": None}
    starts, speeds = starts_of(made.rig.backend, job.job_id), dict[int, float]()
    if job.request.nodes_most is not None:
        with suppress(BackendError, SnapshotError):  # that it cannot be asked is said in `starts`
            speeds = dict(made.rig.backend.speeds(job.job_id))
    return {**starts, "advised_nodes": advised_nodes(made.decision, job, speeds)}


def starts_of(backend: SlurmBackend, job_id: JobId) -> dict[str, Any]:
    """When Slurm plans to start a job, by itself."""
    by_slurm, why = None, "Slurm gives no estimate"
    try:
        by_slurm = backend.expected_start(job_id)
    except (BackendError, SnapshotError) as error:
        why = str(error)
    return {
        "slurm_expects_at": by_slurm,
        "slurm_unknown": None if by_slurm is not None else why,
        "advised_nodes": None,
    }


def _past(made: Look, document: dict[str, Any]) -> dict[str, Any]:
    if made.world is not flags.BackendChoice.SLURM:
        return {"history": None, "history_unknown": "the built-in cluster keeps no journal"}
    path = made.loaded.settings.daemon.state_dir / FILE_NAME
    return past_of(path, made.decision.snapshot.cluster, document)


# -- for people ----------------------------------------------------------------------------------


def in_words(document: dict[str, Any]) -> list[str]:
    """The same for people."""
    if document["state"] == "RUNNING":
        runs = f"{_name(document)} has run for {span(document['running_s'])}."
        return [runs, *_changes(document)]
    if document["state"] == "UNREADABLE":
        return [f"{_name(document)}: {_unreadable(document)}", *_changes(document)]
    lines = [*_expected(document), *_asked(document), *_situation(document)]
    if document.get("is_private"):
        return [*lines, *_start(document)]
    if document.get("only_observed"):
        return [*lines, "The daemon only observes: it orders nothing.", *_changes(document)]
    return [*lines, *_decided(document), *_start(document), *_changes(document)]


def _name(document: dict[str, Any]) -> str:
    """By its number, and as squeue names it where that is another name."""
    number, address = str(document["job_id"]), document["address"]
    return f"Job {number}" if address == number else f"Job {number}, {address}"


def _unreadable(document: dict[str, Any]) -> str:
    return (
        f"rltuned leaves it alone: {Refusal.UNREADABLE.sentence} ({document['unreadable']}). "
        f"`rltuned restore --job {document['job_id']}` restores what rltuned changed of it."
    )


def _expected(document: dict[str, Any]) -> Iterator[str]:
    """`expected to start 14:00 to 17:30 today; 12th of 212`, and with another request."""
    name = f"{_name(document)} ({', '.join(document['partitions'])})"
    if document.get("expected_start") is None:
        why = document.get("expected_why") or "nothing is known of it"
        yield f"{name}: no start is expected: {why}."
    else:
        yield f"{name}: expected to start {_times(document)}; {_place(document)}."
    if "what_if" in document and (found := document["what_if"]) is None:
        yield f"What another request would change is not known: {document['what_if_why']}."
    elif "what_if" in document:
        asked = ["no time limit"] if found["unlimited"] else []
        asked += [] if found["limit_s"] is None else [f"a limit of {span(found['limit_s'])}"]
        asked += [] if found["gpus"] is None else [counted(found["gpus"], "GPU")]
        known = found["expected_start"] is not None
        start = f"{_times(found)}; {_place(found)}" if known else found["expected_why"]
        yield f"With {' and '.join(asked)}: {start}."
    age_s = document.get("expected_age_s")
    if age_s is not None and age_s >= _OLD_S:
        yield f"The forecast is {span(age_s)} old."
    if document.get("expected_start") and document.get("preemption"):
        yield "Preemption is on here, and the forecast knows nothing of it."


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


def _asked(document: dict[str, Any]) -> Iterator[str]:
    """How long it has waited, where it stands in Slurm's queue, and what it asks for."""
    reason = escaped(document["reason"]) or "none"
    yield f"It has waited {span(document['waited_s'])}; Slurm's reason: {reason}."
    yield f"Slurm's priority: {document['current_priority']}."
    rank, ties = document.get("rank_now"), document.get("ties") or 1
    if rank is not None:
        others = counted(ties - 1, "other job")
        same = f"; {others} with its priority, the lower number first" if ties > 1 else ""
        yield f"Place {rank} of {document['waiting_jobs']} in Slurm's queue{same}."
    request = document["request"]
    types, most = "/".join(request["gpu_types"]), request["nodes_most"]
    gpus = counted(request["gpus"], f"{types} GPU" if types else "GPU")
    nodes = f", on {request['nodes']} to {most} nodes (at least this much)" if most else ""
    cpus = counted(request["cpus"], "CPU")
    yield f"It asks for {gpus}, {cpus}, {request['mem_mib']} MiB{nodes}."
    if document["request_changed_at"] is not None:
        yield (
            "What it asks for has changed since rltuned wrote its number; the next cycle that may "
            "write sets the one for what it asks now."
        )
    if (found := document["run_time"]) is not None:
        ends, low, high = found["ends"], span(found["low_s"]), span(found["high_s"])
        known = f"after {counted(ends, 'job')} of its user" if ends else "its user is new"
        yield f"It is expected to run {span(found['mean_s'])} ({low} to {high}; {known})."


def _situation(document: dict[str, Any]) -> Iterator[str]:
    """Its group, and what else holds it where it is."""
    if (group := document.get("group")) is not None:
        step = f"step {group['step']} of {group['depth']} of" if group["step"] else "in"
        held = [
            f"{p['job_id']} ({p['state']}, {_left(p['ends_in_s'])})" for p in group["waits_for"]
        ]
        waits = f"; waits for {', '.join(held)}" if held else ""
        critical = "; on the critical path" if group["critical"] else ""
        end = "unknown" if group["end_at"] is None else when(group["end_at"])
        yield f"It is {step} a group of {group['jobs']} ({group['group']}){waits}{critical}."
        yield f"The group ends, if no job of it waits in the queue: {end}."
        if not group["understood"]:
            yield "Not all of the group's dependencies are understood."
    if document["deadline_at"] is not None:
        yield f"Its deadline is {when(document['deadline_at'])}."
    if (was := document["changed_by_rltuned"]) is not None:
        undo = f"`rltuned restore --job {document['job_id']}`"
        yield f"rltuned set its {was['field']} to {was['value']}; {undo} undoes."
    if (sla := document.get("sla")) is not None:
        left_s, wait = sla["left_s"], span(sla["max_wait_s"])
        how = f"{span(left_s)} left" if left_s >= 0 else f"{span(-left_s)} over it"
        yield f"Its class {sla['class']} is promised a wait of at most {wait}: {how}."
    if (off := document.get("off_block")) is not None:
        until, name = when(off["until"]), off["partition"]
        yield f"It is not delayed: partition {name} measures Slurm's own order until {until}."


def _left(seconds: float | None) -> str:
    return "end unknown" if seconds is None else f"about {span(seconds)} left"


def _decided(document: dict[str, Any]) -> Iterator[str]:
    """What rltuned makes of a waiting job."""
    label = document["refusal"]
    refused = BY_LABEL[label].sentence if label in BY_LABEL else label or ""
    before, wished = document["rank_before"], document["rank_wished"]
    if wished is None:
        left = f"rltuned leaves it alone: {refused}."
        yield _unreadable(document) if document["unreadable"] else left
        return
    # an older daemon has no trust
    yield f"{trusted(document['policy'], document.get('trust'))}: {document['sentence']}."
    yield f"By Slurm's own order it is place {before}; rltuned wants place {wished}."
    yield f"Others may overtake it until {when(document['delay']['overtaken_until'])}."
    current, proposed = document["current_priority"], document["proposed_priority"]
    if document["changes"]:
        yield f"A cycle that may write sets its priority to {document['planned_priority']}."
    elif proposed == current:
        yield f"Its priority stays {current}, as rltuned wants it."
    else:
        yield f"Its priority stays {current}: the wish, {proposed}, is too near to be written."
    if label:
        yield f"Not all at once: {refused}."
    yield from (f"Bounded by {_BOUNDS[name]}." for name in document.get("bounds") or ())
    if document["verdict"] is not None:
        yield f"Placed together with the others it {document['verdict']['why']}."
    for share in document["placement"] or ():
        yield f"It would fit on {share['node']} with {counted(share['gpus'], 'GPU')} now."


def _start(document: dict[str, Any]) -> Iterator[str]:
    starts = document.get("starts")
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


def _changes(document: dict[str, Any]) -> Iterator[str]:
    if "history" not in document:
        return
    if document["history"] is None:
        yield f"Changes so far: unknown ({document['history_unknown']})."
    elif not document["history"]:
        yield "Changes so far: none."
    else:
        yield "Changes so far:"
        changes = [JobChange(**change) for change in document["history"]]
        yield from (f"  {line}" for line in lines_of(changes))
