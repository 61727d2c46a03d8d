"""One look at the queue and one decision, for the commands that change nothing."""

from dataclasses import dataclass
from pathlib import Path

from rltuned.cli.flags import World, settings_of, warn
from rltuned.cli.world import open_world
from rltuned.core.decide import Decision, decide
from rltuned.daemon.journal import Journal
from rltuned.daemon.rig import build_rig
from rltuned.daemon.salt import as_if_full, kept_salt
from rltuned.daemon.seams import Rig
from rltuned.daemon.writer import marked_by
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import JournalError
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
    world: World


def look(config: Path | None, world: World, policy: str | None, seed: int) -> Look:
    """What rltuned would do now.

    Raises:
        SettingsError, ModelError: what is needed to decide cannot be used.
        BackendError, SnapshotError: the cluster cannot be read.
        PolicyError: the policy gave no usable scores.
    """
    loaded = settings_of(config, ("policy.name", policy, "--policy"))
    place = open_world(world, seed=seed, speed=STANDING_STILL)
    secret = kept_salt(loaded)
    if secret is None:
        warn("who the canary treats is not known here; it is shown as if all were treated")
    rig = build_rig(secret or as_if_full(loaded), place.backend(loaded))
    snapshot = rig.backend.observe()
    if world is World.SLURM:
        snapshot = _marked(snapshot, loaded)
    return Look(decide(snapshot, rig.policy, rig.knobs, rig.solver), rig, loaded, world)


def _marked(snapshot: Snapshot, loaded: Loaded) -> Snapshot:
    journal = Journal(loaded.settings.daemon.state_dir)
    try:
        marked = marked_by(journal, snapshot)
        return marked.steered(journal.steering(snapshot.cluster))
    except JournalError as error:
        warn(f"cannot tell which jobs rltuned has changed before: {error}")
        return snapshot
    finally:
        journal.close()
