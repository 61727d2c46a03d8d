"""How scontrol names a job record, and whether every line about it can be sent."""

import re
from typing import Final

from rltuned.domain.jobs import PendingJob

FED_LIMIT: Final = 4_000
"""Characters of one line on scontrol's standard input, which it reads in pieces of 4096 bytes."""
ARGUMENT_LIMIT: Final = 120_000
"""Characters of one line sent as scontrol's arguments; Linux takes 131,072 bytes in each. Tried
with 69,000: Slurm updates exactly the tasks of a list, and splits no record."""
_ADDRESS: Final = re.compile(r"[1-9][0-9]{0,9}(?:\+[0-9]{1,6}|_[0-9]{1,10}|_\[[0-9,:-]+\])?")
_NUMBER: Final = re.compile(r"[0-9]+")
_DIGITS: Final = 7
"""Of a task number that is not known; MaxArraySize is at most 4,000,001."""
_VALUE: Final = 64
"""Characters of a line besides the address, at most; lists of nodes are checked when sent."""


def is_address(text: str) -> bool:
    """Whether this is how scontrol names one record: `12`, `12+1`, `12_3`, `12_[0-3,8]`."""
    return _ADDRESS.fullmatch(text) is not None


def is_sayable(job: PendingJob) -> bool:
    """Whether a write can be taken back: the longest list that an array's record can come to need
    counts, with every third task away.
    """
    return is_address(job.address) and _longest(job) + _VALUE <= ARGUMENT_LIMIT


def _longest(job: PendingJob) -> int:
    if job.array is None or job.array.tasks == 1:
        return len(job.address)
    digits = max((len(n) for n in _NUMBER.findall(job.array.listed)), default=_DIGITS)
    listed = (2 * job.array.tasks + 2) // 3 * (digits + 1)
    return max(len(job.address), len(f"{job.array.array_job_id}_[]") + listed)
