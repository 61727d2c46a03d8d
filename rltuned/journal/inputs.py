"""What a decision depends on besides the snapshot, and what it came to, as the journal keeps them.

A plan is kept as plain JSON and compared as such, so that a journal can be read by a release that
knows other kinds of action.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from rltuned import __version__
from rltuned.core.decide import Decision, Knobs
from rltuned.errors import JournalError
from rltuned.journal.cycles import Document
from rltuned.text import first_flaw


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is needed to decide again. model: digest; empty for a rule. solver: empty = none. trust:
    of a network; 1 in cycles of releases that knew no other.
    """

    policy: str
    knobs: Knobs
    model: str = ""
    solver: str = ""
    release: str = __version__
    trust: float = 1.0

    def encoded(self) -> str:
        """JSON; equal recipes give equal text."""
        return json.dumps(_plain(_ADAPTER.dump_python(self)), sort_keys=True, allow_nan=False)


_ADAPTER: Final = TypeAdapter(Recipe)


def decoded(text: str) -> Recipe:
    """The recipe that was kept. Raises JournalError: this release has no such setting or value."""
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise JournalError(f"settings of the cycle: {first_flaw(error)}") from None


def _plain(value: Any) -> Any:
    """What JSON can say: sets in order, infinity as the word that pydantic reads."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "Infinity" if value == math.inf else value


def plan_document(decision: Decision) -> Document:
    """The plan with the reason of each change of order."""
    changed = {a.target.job_id for a in decision.plan.actions}
    return {
        "actions": [a.document() for a in decision.plan.actions],
        "reasons": {
            str(e.job.job_id): {
                "delay_s": round(e.delay_s, 3),
                "rank_before": e.rank_before,
                "rank_after": e.rank_wished,
                "why": e.why,
            }
            for e in decision.entries
            if e.job.job_id in changed
        },
        "notes": list(decision.notes),
    }
