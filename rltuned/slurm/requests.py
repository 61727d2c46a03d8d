"""Node ranges of pending jobs, and the words of a comment by which a user lets rltuned choose:
`rltuned.nodes=1-4 rltuned.speed=1:1,2:1.9,4:3.4`. Of a comment nothing else is kept.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rltuned.domain.jobs import PendingJob, Remembered
from rltuned.domain.plan import REQUEST_WORDS
from rltuned.domain.sizes import Sizes
from rltuned.domain.units import JobId
from rltuned.slurm.columns import RequestRow
from rltuned.slurm.strings import parse_tres
from rltuned.slurm.values import parse_number

MOST: Final = 4096
"""Characters of a comment that are looked at."""
_WORDS: Final = re.compile(r"(?<!\S)rltuned\.(nodes|speed)=(\S+)")
_SPEED: Final = re.compile(r"([1-9][0-9]{0,5}):([0-9]{1,9}(?:\.[0-9]{1,9})?)")


def read_sizes(row: RequestRow) -> Sizes | None:
    """What a row says; None = no range. The fewest nodes stand among the TRES alone."""
    try:
        nodes = f"{parse_tres(row.tres_alloc).get('node', 0)}-{parse_number(row.maxnodes)}"
        tasks = parse_number(row.numtasks)
    except ValueError:
        return None
    found = REQUEST_WORDS.fullmatch(nodes)
    if found is None or int(found["least"]) > int(found["most"]):
        return None
    return Sizes(nodes, tasks, parse_speeds(row.comment))


def parse_speeds(comment: str) -> tuple[tuple[int, float], ...]:
    """The node counts that a comment allows, and the speed on each; empty = none, or flawed."""
    words = _WORDS.findall(comment[:MOST])
    given = dict(words)
    allowed = REQUEST_WORDS.fullmatch(given.get("nodes", ""))
    items = [_SPEED.fullmatch(item) for item in given.get("speed", "").split(",")]
    if len(words) != len(given) or allowed is None or not all(items):
        return ()
    speeds = [(int(item[1]), float(item[2])) for item in items if item is not None]
    counts = [count for count, _ in speeds]
    if counts != sorted(set(counts)) or not all(speed > 0 for _, speed in speeds):
        return ()
    least, most = int(allowed["least"]), int(allowed["most"])
    return tuple((count, speed) for count, speed in speeds if least <= count <= most)


def with_sizes(
    jobs: tuple[PendingJob, ...], known: Mapping[JobId, Sizes], says: Remembered
) -> tuple[PendingJob, ...]:
    """Jobs with their sizes, where a user lets rltuned choose or rltuned has chosen."""

    def dressed(job: PendingJob) -> PendingJob:
        sizes = known.get(job.job_id)
        mine = (job.job_id, job.submitted_at) in says.narrowed
        return job if sizes is None or not (sizes.speeds or mine) else replace(job, sizes=sizes)

    return tuple(map(dressed, jobs))
