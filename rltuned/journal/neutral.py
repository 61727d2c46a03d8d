"""The neutral delay of each cluster, kept in the journal so that a restart changes no number."""

from typing import Final

from pydantic import ConfigDict, TypeAdapter

from rltuned.domain.priority import NeutralDelay
from rltuned.journal.named_values import Memory, Recall, read_kept

_NAME: Final = "neutral_delays"
"""Under which the journal keeps them: cluster -> neutral delay."""
_ADAPTER: Final = TypeAdapter(
    dict[str, NeutralDelay], config=ConfigDict(extra="forbid", allow_inf_nan=False)
)


def recalled(memory: Recall, cluster: str) -> NeutralDelay | None:
    """The neutral delay of one cluster; None = none has been kept yet.

    Raises:
        JournalError: the journal cannot be used, or what it says of them cannot be read.
    """
    return _read(memory.recall(_NAME)).get(cluster)


def keep(memory: Memory, cluster: str, neutral: NeutralDelay, at: float) -> None:
    """Keep it for the next cycle, after a restart or on another host too.

    Raises:
        JournalError: the journal cannot be used, or what it says of them cannot be read.
    """

    def put(kept: object) -> object:
        everywhere = {**_read(kept), cluster: neutral}
        return _ADAPTER.dump_python(everywhere, mode="json")

    memory.alter(_NAME, put, at)


def _read(kept: object) -> dict[str, NeutralDelay]:
    return read_kept(_ADAPTER, kept, "neutral delays in the journal")
