"""How many examples a property test draws: a quarter, and all in `make test-examples`."""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

T = TypeVar("T")
ALL = 100
"""Of a test that names no number of its own."""


def load_profile() -> None:
    """`few`, or that of the environment's RLTUNED_EXAMPLES.

    Nothing here asserts times: a machine with other work to do is no failure.
    """
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    for name, most in (("few", ALL // 4), ("all", ALL)):
        settings.register_profile(
            name, max_examples=most, deadline=None, suppress_health_check=slow
        )
    settings.load_profile(os.environ.get("RLTUNED_EXAMPLES", "few"))


def examples(most: int, whole: int | None = None, **more: Any) -> settings:
    """So many in the profile `all`, and of them the part that the profile in force draws. whole: of
    `all` in place of `most`.
    """
    if whole is not None and settings().max_examples >= ALL:
        most = whole
    return settings(max_examples=max(1, most * settings().max_examples // ALL), **more)


def some(cases: Sequence[T], number: int) -> Sequence[T]:
    """All cases in the profile `all`, else the one of this number: tests marked `examples`."""
    if settings().max_examples < ALL:
        return [cases[number % len(cases)]]
    return cases
