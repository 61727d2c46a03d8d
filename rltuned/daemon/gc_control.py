"""Python's search for reference cycles, kept out of the way of the loop.

A cycle of a large queue makes millions of small objects that refer to each other in one direction
only, so counting references frees them all. The search would walk through them again and again
while they are made: with 50,000 jobs it took two thirds of a decision.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No search meanwhile; afterwards as before, so what does form cycles is found at rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
