"""What the accounting database says of the jobs, joined with the trace."""

from collections.abc import Sequence
from dataclasses import dataclass

from rltuned.sim.trace import TraceJob
from scripts.studies.experiment_slurm.jobs import name_of

FIELDS = ("JobName", "Submit", "Start", "End", "State", "NodeList", "User")
SACCT = (
    "sacct", "-X", "-D", "-n", "-P", "-a", "-S", "2020-01-01", "-E", "2037-12-31",
    f"--format={','.join(FIELDS)}",
)  # fmt: skip
"""With SLURM_TIME_FORMAT=%s: times in Unix seconds. -D shows every try of a requeued job."""


class BooksError(RuntimeError):
    """The accounting does not show every job once, and completed: the run is void."""


@dataclass(frozen=True)
class Entry:
    """One job in the books; Unix seconds of the faster clock."""

    submit_at: int
    start_at: int
    end_at: int
    state: str
    nodes: str
    user: str


def parse(text: str) -> dict[str, Entry]:
    """sacct's answer by job name.

    Raises:
        BooksError: a line that does not read, a job without an end, a job that is there twice.
    """
    found: dict[str, Entry] = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != len(FIELDS):
            raise BooksError(f"sacct: {len(cells)} fields, not {len(FIELDS)}: {line!r}")
        name, submit, start, end, state, nodes, user = cells
        if not (submit.isdigit() and start.isdigit() and end.isdigit()):
            raise BooksError(f"sacct: job {name} has no times: {line!r}")
        if name in found:
            raise BooksError(f"sacct: job {name} is there twice: it was requeued")
        found[name] = Entry(int(submit), int(start), int(end), state, nodes, user)
    return found


def join(entries: dict[str, Entry], jobs: Sequence[TraceJob]) -> list[Entry]:
    """The entries in the trace's order.

    Raises:
        BooksError: a job is missing, is not of the trace, or did not end as COMPLETED.
    """
    names = [name_of(job) for job in jobs]
    absent = [n for n in names if n not in entries]
    if absent or len(entries) != len(names):
        raise BooksError(
            f"{len(names)} jobs were submitted, {len(entries)} are in the books; "
            f"missing: {', '.join(absent[:5]) or 'none'}"
        )
    bad = [f"{n} {entries[n].state}" for n in names if entries[n].state != "COMPLETED"]
    if bad:
        raise BooksError(f"{len(bad)} jobs did not complete: {', '.join(bad[:5])}")
    return [entries[n] for n in names]
