"""When Python's search for reference cycles rests."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Python's search for reference cycles rests meanwhile; afterwards it is as before.

    A cycle of a large queue makes millions of small objects that refer to each other in one
    direction only, so counting references frees them all. The search walks through them again and
    again while they are made: with 50,000 jobs it took two thirds of a decision.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
