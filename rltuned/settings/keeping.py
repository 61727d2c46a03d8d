"""The keys of the journal."""

from rltuned.journal.snapshots import Keeping
from rltuned.settings.key import Keys, key


class JournalKeys(Keys):
    """What the journal forgets. Never what is needed to give a job its own standing back."""

    keep_days: float = key(
        Keeping().days,
        "days",
        "How long cycles, snapshots, plans and finished changes are kept.",
        ge=1.0,
        le=3650.0,
    )
    max_mib: int = key(
        int(Keeping().max_mib),
        "MiB",
        "When the journal has grown to this, the oldest snapshots and plans are removed, then the "
        "oldest finished changes. A cycle with 10,000 pending jobs takes about half a MiB.",
        ge=16,
        le=1_048_576,
    )

    def keeping(self) -> Keeping:
        return Keeping(self.keep_days, self.max_mib)
