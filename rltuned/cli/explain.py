"""`rltuned explain`: what rltuned sees and thinks of one job."""

import json
from contextlib import suppress
from typing import Annotated
from urllib.parse import urlencode

import typer

from rltuned.cli import flags
from rltuned.cli.asking import PLAYED_S, answered, open_world
from rltuned.cli.plan import Made, look
from rltuned.core.line import advised_nodes
from rltuned.daemon.documents import Document
from rltuned.daemon.what_if import other_of
from rltuned.daemon.words import in_words
from rltuned.domain.plan import Backend
from rltuned.domain.units import JobId
from rltuned.errors import BackendError, JournalError, SnapshotError
from rltuned.slurm.backend import SlurmBackend

app = typer.Typer()


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
    asked = {"job": job} | ({} if limit is None else {"limit": limit})
    asked |= {} if gpus is None else {"gpus": str(gpus)}
    try:
        other_of(limit, asked.get("gpus"))
    except ValueError as error:
        raise typer.BadParameter(f"--limit: {error}") from None
    loaded = flags.in_force(config, ("policy.name", policy, "--policy"))
    document = None
    if backend is flags.BackendChoice.SLURM and policy is None:
        document = answered(loaded.settings, f"/job.json?{urlencode(asked)}", "job", PLAYED_S)
        if document is not None and document["state"] == "PENDING":
            with suppress(BackendError, JournalError):
                slurm = open_world(backend)[1](loaded)
                document["starts"] = by_slurm(slurm, document["job_id"])
    if document is None:
        if len(asked) > 1:
            flags.warn("what another request would change is known to the daemon alone")
        document = explained(look(loaded, backend, seed), job)
    if document is None:
        flags.warn(f"the cluster shows no pending or running job {job}")
        raise typer.Exit(1)
    lines = [json.dumps(document, indent=2, allow_nan=False)] if as_json else in_words(document)
    flags.say("\n".join(lines))


def explained(made: Made, asked: str) -> Document | None:
    """All that is known of one job without the daemon, for JSON; None = the cluster shows no such
    job. The journal, and Slurm once more, are asked only for a job that squeue shows to this user,
    so that no user learns more of a job than Slurm shows.
    """
    job, backend = made.look.find(asked), made.rig.backend
    document = (made.look if job is None else made.told()).explain(asked)
    if job is None or document is None:
        return document
    document["starts"] = by_slurm(backend, job.job_id)
    if isinstance(backend, SlurmBackend) and job.request.nodes_most is not None:
        with suppress(BackendError, SnapshotError):  # that it cannot be asked is said in `starts`
            speeds = dict(backend.speeds(job.job_id))
            document["starts"]["advised_nodes"] = advised_nodes(made.decision, job, speeds)
    return document


def by_slurm(backend: Backend, job_id: JobId) -> Document:
    """When Slurm plans to start a job, by itself; and on how many nodes of a range it ends soonest,
    where that is known.
    """
    at, why = None, "Slurm gives no estimate"
    try:
        if isinstance(backend, SlurmBackend):
            at = backend.expected_start(job_id)
        else:
            why = "the built-in cluster makes no plan"
    except (BackendError, SnapshotError) as error:
        why = str(error)
    unknown = why if at is None else None
    return {"slurm_expects_at": at, "slurm_unknown": unknown, "advised_nodes": None}
