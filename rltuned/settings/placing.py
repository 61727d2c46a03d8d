"""The keys of joint placement and of OverSubscribe guidance."""

from typing import Literal

from rltuned.core.joint import Tuning
from rltuned.core.milp import Budget
from rltuned.core.sharing import Sharing
from rltuned.core.steering import Steer
from rltuned.settings.key import Keys, Names, key


class PlacementKeys(Keys):
    """The solver behind `policy.placement = "milp"`."""

    solver: Literal["cbc", "highs"] = key(
        "cbc",
        "",
        "cbc comes with PuLP. highs needs `pip install highspy` and 0.15 s more to start.",
    )
    budget_s: float = key(
        Budget().wall_s,
        "seconds",
        "The solver is ended after this time; then the greedy placement is used.",
        gt=0.0,
        le=60.0,
    )
    memory_mib: int = key(
        Budget().memory_mib,
        "MiB",
        "Address space that the solver may use.",
        ge=64,
        le=65_536,
    )
    horizon_s: float = key(
        Budget().horizon_s,
        "seconds",
        "How far ahead ends of running jobs are considered.",
        ge=60.0,
        le=604_800.0,
    )
    max_slots: int = key(
        Budget().max_slots,
        "",
        "Moments considered within the horizon, now included; more cost solving time.",
        ge=1,
        le=16,
    )

    steer: bool = key(
        False,
        "",
        "Keep pending jobs that accept several GPU types off the types that others need more, by "
        "ExcNodeList, for as long as they would start at once on another. Only jobs that name no "
        "nodes of their own; taken back in the next cycle that does not want it, by `rltuned "
        "restore`, and after steer_expiry_s.",
    )
    steer_expiry_s: float = key(
        Steer().expiry_s,
        "seconds",
        "Longest time for which nodes are excluded for a job, counted from the first time.",
        ge=10.0,
        le=86_400.0,
    )

    def steering(self) -> Steer:
        return Steer(self.steer, self.steer_expiry_s)

    def budget(self) -> Budget:
        return Budget(self.budget_s, self.memory_mib, self.horizon_s, self.max_slots)


class OverSubscribeKeys(Keys):
    """Lets exclusive jobs share their nodes."""

    scope: Names = key(
        [],
        "",
        "Partitions in which a pending --exclusive job may be set to OverSubscribe=YES when its "
        'node would keep others waiting. Needs `policy.placement = "milp"`. Empty = never. It '
        "cannot be taken back in full: see docs/placement.md.",
    )
    allow_cpu_sharing: bool = key(
        False,
        "",
        "Also in partitions with OverSubscribe=YES:n, where Slurm then puts up to n such jobs on "
        "one CPU.",
    )

    def sharing(self) -> Sharing:
        return Sharing(frozenset(self.scope), self.allow_cpu_sharing)


def tuning(placement: PlacementKeys, oversubscribe: OverSubscribeKeys) -> Tuning:
    """What the joint decision is steered by."""
    return Tuning(
        budget=placement.budget(), sharing=oversubscribe.sharing(), steer=placement.steering()
    )
