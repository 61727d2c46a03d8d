"""What a journal says of whether rltuned helps: one reading of it, and its jobs played again."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from rltuned.core.canary import Canary
from rltuned.core.decide import Knobs
from rltuned.core.ladder import Rung
from rltuned.daemon.effect import Effect, Waits
from rltuned.daemon.recipe import Recipe, decoded
from rltuned.daemon.reckoning import Interval, Replay
from rltuned.daemon.report import Mode
from rltuned.daemon.rig import find_policy
from rltuned.daemon.trial import arms
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime
from rltuned.errors import BackendError, JournalError, SnapshotError, TraceError
from rltuned.recording import Packed, open_to_read, unpack
from rltuned.settings import Loaded, Settings
from rltuned.slurm.commands import Commands
from rltuned.slurm.weights import Weights, ask_weights

if TYPE_CHECKING:  # the simulator is imported by the one command that needs it
    from rltuned.sim.natural import Natural
    from rltuned.sim.past import Past

ASSUMED: Final = (
    "The record is played again in the simulator: run times as seen for jobs that ended, the usual "
    "share of the limit for the others; EASY backfill, nodes never down, no limits of users, no "
    "fair share and no QOS. rltuned ranks as the daemon does at stage full: once per interval, "
    "within its bounds and its cap. The interval comes from ten stretches of this one record: "
    "chance of the moment, not what the simulator gets wrong. The two simulated waits compare with "
    "each other; with the real one only to see how far the simulator is off."
)


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that a report says.

    Attributes:
        cluster: of the last cycle; "" = no cycle is kept.
        points: Unix seconds and pending jobs, of every cycle.
        trial: treated against control; None = no canary in this time.
        replay: None = there is none, and why says so.
    """

    since: float
    cluster: str = ""
    points: tuple[tuple[float, int], ...] = ()
    trial: Effect | None = None
    replay: Replay | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    snapshot: Snapshot
    mode: str
    recipe: str | None


@dataclass(slots=True)
class _Looker:
    """Takes in every cycle while the record is read for the replay."""

    cluster: str = ""
    points: list[tuple[float, int]] = field(default_factory=list)
    waits: Waits | None = None
    terms: tuple[Canary, str] | None = None

    def look(self, seen: _Seen) -> None:
        snapshot = seen.snapshot
        self.cluster = snapshot.cluster
        self.points.append((float(snapshot.taken_at), len(snapshot.pending)))
        recipe = None if seen.recipe is None else _decoded(seen.recipe)
        if recipe is None or recipe.knobs.rules.canary is None:
            return
        rules = recipe.knobs.rules
        terms = recipe.knobs.rules.canary, recipe.model or recipe.policy
        if self.waits is None or terms != self.terms:  # two models are never pooled
            self.waits, self.terms = Waits(), terms
        sides = arms(snapshot, None, rules, Rung.CANARY)
        self.waits.look(snapshot, sides, joining=seen.mode == Mode.LIVE)


def found_in(path: Path, since: float, loaded: Loaded) -> Found:
    """Read a journal once, and play its jobs again.

    Raises:
        JournalError, SnapshotError: the journal cannot be read, or is damaged.
        SettingsError, ModelError: the policy of the settings cannot be used.
    """
    from rltuned.sim.past import past_of  # noqa: PLC0415 - only this command

    looker = _Looker()

    def snapshots() -> Iterator[Snapshot]:
        for seen in _looks(path, since):
            looker.look(seen)
            yield seen.snapshot

    replay, why = None, ""
    try:
        past = past_of(snapshots())
    except TraceError as error:
        why = str(error)
    else:
        replay = _replayed(past, looker.cluster, loaded)
    return Found(
        since=since,
        cluster=looker.cluster,
        points=tuple(looker.points),
        trial=None if looker.waits is None else looker.waits.effect(),
        replay=replay,
        why=why,
    )


def _looks(path: Path, since: float) -> Iterator[_Seen]:
    """Every cycle; a cluster in which nothing moved is unpacked once."""
    kept, last = "", None
    with closing(open_to_read(path)) as db:
        try:
            for taken_at, digest, body, mode, recipe in db.execute(
                "SELECT c.taken_at, s.digest, s.body, c.mode, r.body FROM cycles AS c"
                " JOIN snapshots AS s ON s.digest = c.snapshot"
                " LEFT JOIN recipes AS r ON r.digest = c.recipe"
                " WHERE c.taken_at >= ? ORDER BY c.cycle",
                (since,),
            ):
                if last is None or digest != kept:
                    kept, last = digest, unpack(Packed(digest, body), taken_at)
                else:
                    last = replace(last, taken_at=UnixTime(taken_at))
                yield _Seen(last, mode, recipe)
        except sqlite3.Error as error:
            raise JournalError(f"{path}: cannot be read: {error}") from None


@cache
def _decoded(recipe: str) -> Recipe:
    return decoded(recipe)


def _replayed(past: "Past", cluster: str, loaded: Loaded) -> Replay:
    from rltuned.sim.past import difference, waits_decided, waits_under  # noqa: PLC0415
    from rltuned.sim.protocol import Protocol  # noqa: PLC0415
    from rltuned.sim.world import Rules as SlurmRules  # noqa: PLC0415

    settings = loaded.settings
    policy, _, _ = find_policy(loaded)
    natural, told = natural_order(settings, cluster)
    slurms = SlurmRules(natural=natural)
    alone = waits_under(past, natural.kind, Protocol(rules=slurms))
    protocol = Protocol(
        mode="cycle",
        interval_s=settings.daemon.interval_s,
        rules=slurms,
        knobs=_knobs(settings),
    )
    ours = waits_decided(past, policy, protocol)
    apart = difference(past, ours, alone)
    return Replay(
        policy=settings.policy.name,
        order=told,
        jobs=len(ours),
        ended=past.ended,
        assumed=past.assumed,
        real_s=fmean(past.waits_s[name] for name in ours),
        slurm_s=fmean(alone.values()),
        ours_s=fmean(ours.values()),
        difference=Interval(mean_s=apart.mean_s, low_s=apart.low_s, high_s=apart.high_s),
    )


def _knobs(settings: Settings) -> Knobs:
    """The daemon's own, with every job of its scope treated, and without placements."""
    ladder = settings.ladder.model_copy(update={"stage": Rung.FULL.value})
    full = settings.model_copy(update={"ladder": ladder}).knobs()
    return replace(full, top_k=0, placement="pack")


def natural_order(settings: Settings, cluster: str) -> tuple["Natural", str]:
    """What Slurm's own order is played as, and whose weights those are, in words.

    The site's, when its Slurm can be asked now (one `scontrol show config`); else the simulator's.
    """
    from rltuned.sim.natural import Natural  # noqa: PLC0415

    try:
        weights = ask_weights(Commands(settings.slurm.cli(), environ=os.environ), cluster)
    except (BackendError, SnapshotError) as error:
        own = Natural(kind="multifactor")
        told = _weights_told(own)
        return own, f"multifactor with the simulator's own weights ({told}), because {error}"
    if weights.basic:
        return Natural(kind="fcfs"), "priority/basic, as this site has it: first come, first served"
    played = Natural(
        kind="multifactor",
        age_weight=weights.age,
        size_weight=weights.size,
        partition_weight=weights.partition,
        max_age_s=weights.max_age_s,
        favor_small=weights.favor_small,
    )
    return played, f"multifactor with this site's weights ({_weights_told(played)}){_rest(weights)}"


def _weights_told(natural: "Natural") -> str:
    small = ", small jobs first" if natural.favor_small else ""
    return (
        f"age {natural.age_weight} at {natural.max_age_s / 86_400:g} d, "
        f"size {natural.size_weight} by GPUs{small}, partition {natural.partition_weight}"
    )


def _rest(weights: Weights) -> str:
    """What counts on the site, and was not played: nobody shall take the replay for the site."""
    return f"; not played: {', '.join(weights.others)}" if weights.others else ""
