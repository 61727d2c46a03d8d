"""One look at the queue and one decision, for the commands that change nothing."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rltuned.cli.flags import BackendChoice, settings_of, warn
from rltuned.cli.world import open_world
from rltuned.core.decide import Decision, decide
from rltuned.daemon.apply import marked_by
from rltuned.daemon.runtime import Rig
from rltuned.daemon.salt import as_if_on, kept_salt
from rltuned.daemon.wiring import build_rig
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.settings import Loaded

STANDING_STILL = 1e-6
"""Speed of the built-in cluster for one look: the same seed shows the same queue, however long
the machine takes."""


@dataclass(frozen=True, slots=True)
class Look:
    """A decision with what it was made by. world: where the queue is."""

    decision: Decision
    rig: Rig
    loaded: Loaded
    world: BackendChoice


def look(config: Path | None, world: BackendChoice, policy: str | None, seed: int) -> Look:
    """What rltuned would do now.

    Raises:
        SettingsError, ModelError: what is needed to decide cannot be used.
        BackendError, SnapshotError: the cluster cannot be read.
        PolicyError: the policy gave no usable scores.
    """
    loaded = settings_of(config, ("policy.name", policy, "--policy"))
    place = open_world(world, seed=seed, speed=STANDING_STILL)
    with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
        secret = kept_salt(loaded, journal)
        if secret is None:
            warn("the blocks of the switchback are not known; it is shown as if delays were on")
        rig = build_rig(secret or as_if_on(loaded), place.backend(loaded))
        snapshot = rig.backend.observe()
        if world is BackendChoice.SLURM:
            snapshot = marked(snapshot, journal)
    return Look(decide(snapshot, rig.policy, rig.knobs, rig.solver), rig, loaded, world)


def marked(snapshot: Snapshot, journal: Journal) -> Snapshot:
    """The snapshot with what the journal says of its jobs."""
    try:
        return marked_by(journal, snapshot)
    except JournalError as error:
        warn(f"cannot tell which jobs rltuned has changed before: {error}")
        return snapshot
