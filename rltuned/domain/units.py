"""The words of one value each: identifiers and moments."""

import math
from typing import Final, NewType

JobId = NewType("JobId", int)
"""Slurm's number of one job *record*: for an array, of the record that holds its pending tasks."""

NodeName = NewType("NodeName", str)

GpuType = NewType("GpuType", str)
"""Type part of `gpu:TYPE:N` in gres.conf; the empty string is a GPU without a type."""

UnixTime = NewType("UnixTime", float)
"""Seconds since 1970-01-01 UTC."""

CLOCK_S: Final = 120.0
"""slurmctld's clock and this host's may be so far apart; beyond that nothing is written."""

JobKey = tuple[JobId, UnixTime]
"""What tells jobs apart: number and submit time, as Slurm hands out numbers again."""

UNLIMITED_S: Final = math.inf
"""A time limit of UNLIMITED. Unknown limits are None, never this."""
