"""One case for each row of the table of fields: what Slurm, journal and people see of it."""

from dataclasses import dataclass, replace
from typing import Any, Final

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    NICE,
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Value,
    target_of,
)
from tests.builders import job
from tests.fakes import NATURAL


@dataclass(frozen=True)
class Case:
    """One write to a job.

    Attributes:
        before: the job as Slurm shows it; None for what only undoes another write.
        after: the same once it is written.
        restored: the same once that is undone.
        action: the write.
        lines: what scontrol receives.
        grammar: of the assignment among them.
        document: the values in the document of a plan, in order.
        stored: field, old, new and nice in the journal's diary.
        kind: in metrics.
        history: what `rltuned history` says.
        done: what a restore says of this write.
        refused: values that are not written.
        simulated: whether the simulated backend does it.
    """

    before: PendingJob
    after: PendingJob
    action: Action
    lines: tuple[str, ...]
    grammar: str
    document: dict[str, Any]
    stored: tuple[str, Value, Value | None, int | None]
    kind: str
    history: str
    done: str
    restored: PendingJob | None = None
    refused: tuple[Value, ...] = ()
    simulated: bool = True


ONE: Final = job(1, priority=300, nice=7, oversubscribe="NO")
AT: Final = target_of(ONE)
FROZEN: Final = replace(ONE, priority=900, nice=0, fixed=True, site_factor=None)

CASES: Final = (
    Case(
        before=ONE,
        after=replace(ONE, priority=900, nice=0),
        restored=replace(ONE, priority=NATURAL),
        action=Action(PRIORITY, AT, 300, 900, nice=7, rest=250),
        lines=("update JobId=1 Priority=900",),
        grammar="Priority=[0-9]{1,10}",
        document={"action": "SetPriority", "old": 300, "new": 900, "nice": 7, "rest": 250},
        stored=("priority", 300, 900, 7),
        kind="priority",
        history="priority 300 -> 900",
        done="priority 300 -> 900",
        refused=(0, 4_294_967_294),
    ),
    Case(
        before=ONE,
        after=replace(ONE, site_factor=-40, priority=260),
        restored=ONE,
        action=Action(SITE_FACTOR, AT, 0, -40),
        lines=("update JobId=1 SiteFactor=-40",),
        grammar="SiteFactor=-?[0-9]{1,10}",
        document={"action": "SetSiteFactor", "old": 0, "new": -40},
        stored=("site_factor", 0, -40, None),
        kind="site_factor",
        history="site_factor 0 -> -40",
        done="site factor 0 -> -40",
        refused=(2_147_483_646, -2_147_483_646),
    ),
    Case(
        before=FROZEN,
        after=replace(ONE, priority=NATURAL, nice=-5, live=True),
        action=Action(RELEASE, AT, 900, 300, nice=-5),
        lines=("release 1", "update JobId=1 Nice=-5"),
        grammar="Nice=-?[0-9]{1,10}",
        document={"action": "Release", "old": 900, "nice": -5, "original": 300},
        stored=("release", 900, None, -5),
        kind="release",
        history="priority 900 -> released, nice -5 set again",
        done="priority 900 released to multifactor, nice -5 set again",
    ),
    Case(
        before=replace(FROZEN, priority=0, held_by="user"),
        after=replace(FROZEN, priority=0, held_by="user", nice=7),
        action=Action(NICE, AT, 0, 7),
        lines=("update JobId=1 Nice=7",),
        grammar="Nice=-?[0-9]{1,10}",
        document={"action": "SetNice", "old": 0, "new": 7},
        stored=("nice", 0, 7, None),
        kind="release",
        history="nice 0 -> 7",
        done="nice 7 set again; rltuned's number was gone by a hold",
    ),
    Case(
        before=ONE,
        after=replace(ONE, oversubscribe="YES"),
        restored=ONE,
        action=Action(OVERSUBSCRIBE, AT, "NO", "YES"),
        lines=("update JobId=1 OverSubscribe=YES",),
        grammar="OverSubscribe=(?:YES|NO)",
        document={"action": "SetOverSubscribe", "old": "NO", "new": "YES"},
        stored=("oversubscribe", "NO", "YES", None),
        kind="oversubscribe",
        history="oversubscribe NO -> YES",
        done="OverSubscribe NO -> YES: alone on its nodes again, with what it asked for; whole "
        "nodes cannot be restored",
        refused=("OK", "USER", "", "yes", 1),
    ),
)
