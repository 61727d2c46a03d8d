"""All that is known of one job, as the document that `rltuned explain --json` prints."""

from contextlib import suppress
from typing import Any

from rltuned.cli.flags import BackendChoice
from rltuned.cli.plan import Look
from rltuned.core.explaining import advised_nodes
from rltuned.core.starts import NEVER, expectation
from rltuned.daemon.documents import (
    OF_NUMBERS,
    explanation,
    find_job,
    of_task,
    past_of,
    situation,
)
from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId
from rltuned.errors import BackendError, SnapshotError
from rltuned.journal.snapshots import FILE_NAME
from rltuned.slurm.backend import SlurmBackend


def explained(look: Look, asked: str, *, is_private: bool = False) -> dict[str, Any] | None:
    """All that is known of one job, for JSON; None = the cluster shows no such job. is_private: the
    journal is, and which part of a priority is rltuned's is not known; nor is what follows from it.

    The journal, and Slurm once more, are asked only for a job that squeue shows to this user, so
    that no user learns more of a job than Slurm shows.
    """
    decision = look.decision
    seen = decision.snapshot
    document = explanation(asked, seen, decision.context, decision)
    if document is None:
        return None
    document |= _past(look, document)
    job = find_job(seen, asked)
    if job is None:
        return document
    told = expectation(look.expected(job.job_id), job.job_id, seen.taken_at)
    document |= of_task(told, job, asked)
    refusal = document["refusal"]
    document |= situation(job, seen, look.rig.knobs, look.groups, decision, refusal=refusal)
    if is_private:
        document |= {"is_private": True, "bounds": None, **dict.fromkeys(OF_NUMBERS)}
        if document["expected_why"] == NEVER:  # PrivateData may hide what runs
            document["expected_why"] = "Slurm does not show this user what runs"
    return {**document, "starts": _starts(look, job)}


def _starts(look: Look, job: PendingJob) -> dict[str, Any]:
    """When Slurm plans to start it, and on how many nodes of a range it ends soonest."""
    if not isinstance(look.rig.backend, SlurmBackend):
        why = "the built-in cluster makes no plan"
        return {"slurm_expects_at": None, "slurm_unknown": why, "advised_nodes": None}
    starts, speeds = starts_of(look.rig.backend, job.job_id), dict[int, float]()
    if job.request.nodes_most is not None:
        with suppress(BackendError, SnapshotError):  # that it cannot be asked is said in `starts`
            speeds = dict(look.rig.backend.speeds(job.job_id))
    return {**starts, "advised_nodes": advised_nodes(look.decision, job, speeds)}


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


def _past(look: Look, document: dict[str, Any]) -> dict[str, Any]:
    if look.world is not BackendChoice.SLURM:
        return {"history": None, "history_unknown": "the built-in cluster keeps no journal"}
    path = look.loaded.settings.daemon.state_dir / FILE_NAME
    return past_of(path, look.decision.snapshot.cluster, document)
