"""`rltuned explain`: what rltuned sees and thinks of one job."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated
from urllib.parse import urlencode

import typer

from rltuned.cli import flags
from rltuned.cli.asking import PLAYED_S, ask_about, is_private, old, open_world
from rltuned.cli.plan import ALONE, NOT_KNOWN, Made, look
from rltuned.core.line import advised_nodes
from rltuned.core.starts import NEVER
from rltuned.daemon.documents import OF_NUMBERS, Document
from rltuned.daemon.what_if import other_of
from rltuned.daemon.words import in_words
from rltuned.domain.plan import Backend
from rltuned.domain.units import JobId
from rltuned.errors import BackendError, SnapshotError
from rltuned.settings import Loaded
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
    is_slurm = backend is flags.BackendChoice.SLURM
    private = is_slurm and is_private(loaded.settings.daemon.state_dir)
    document = None
    if is_slurm and (private or policy is None):
        document = _answered(loaded, asked, is_private=private)
    if document is None:
        if len(asked) > 1:
            flags.warn("what another request would change is known to the daemon alone")
        made = look(loaded, backend, seed, is_private=private)
        document = explained(made, job, is_private=private)
    if document is None:
        flags.warn(f"the cluster shows no pending or running job {job}")
        raise typer.Exit(1)
    lines = [json.dumps(document, indent=2, allow_nan=False)] if as_json else in_words(document)
    flags.say("\n".join(lines))


def _answered(loaded: Loaded, asked: Mapping[str, str], *, is_private: bool) -> Document | None:
    """What the daemon answers to this user; None = it does not, which is said."""
    document, why = ask_about(loaded.settings, f"/job.json?{urlencode(asked)}", "job", PLAYED_S)
    if document is None:
        flags.warn((NOT_KNOWN if is_private else ALONE).format(why))
        return None
    flags.warn_of(old(document, loaded.settings))
    if not is_private and document["state"] == "PENDING":
        with suppress(BackendError):
            slurm = open_world(flags.BackendChoice.SLURM)[1](loaded)
            document["starts"] = by_slurm(slurm, document["job_id"])
    return document


def explained(made: Made, asked: str, *, is_private: bool = False) -> Document | None:
    """All that is known of one job without the daemon, for JSON; None = the cluster shows no such
    job. is_private: the journal is, and which part of a priority is rltuned's is not known; nor is
    what follows from it.

    The journal, and Slurm once more, are asked only for a job that squeue shows to this user, so
    that no user learns more of a job than Slurm shows.
    """
    job, backend = made.look.find(asked), made.rig.backend
    document = (made.look if job is None else made.told()).explain(asked)
    if job is None or document is None:
        return document
    if is_private:
        document |= {"is_private": True, **dict.fromkeys(OF_NUMBERS)}
        if document["expected_why"] == NEVER:  # PrivateData may hide what runs
            document["expected_why"] = "Slurm does not show this user what runs"
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
