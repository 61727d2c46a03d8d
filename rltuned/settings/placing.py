"""The keys of joint placement and of OverSubscribe guidance."""

from typing import Literal

from rltuned.core.milp.problem import Budget
from rltuned.core.milp.sharing import Sharing
from rltuned.core.milp.solution import Tuning
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
    return Tuning(budget=placement.budget(), sharing=oversubscribe.sharing())
