"""From settings to the core's own dataclasses, which know of no file."""

from typing import Final

from rltuned.core.decide import Knobs
from rltuned.core.joint import Tuning
from rltuned.core.milp import Budget
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.core.sharing import Sharing
from rltuned.core.sla import SlaClass
from rltuned.settings.keys import Settings

_HOUR_S: Final = 3_600.0


def knobs_of(settings: Settings) -> Knobs:
    """What `decide` is steered by."""
    order, limits, place = settings.order, settings.limits, settings.placement
    share = settings.oversubscribe
    return Knobs(
        rules=_scope(settings),
        order=Order(order.own, order.share, order.clip, order.max_delay_s),
        writing=Writing(
            mode=limits.write_mode,
            own_slope=order.points_per_hour / _HOUR_S,
            max_changes=limits.max_changes,
            hysteresis=limits.hysteresis,
        ),
        sla=tuple(SlaClass(*keys.name, keys.max_wait_s) for keys in settings.sla),
        top_k=settings.policy.top_k,
        placement=settings.policy.placement,
        tuning=Tuning(
            budget=Budget(place.budget_s),
            sharing=Sharing(frozenset(share.scope), share.allow_cpu_sharing),
        ),
    )


def _scope(settings: Settings) -> Scope:
    """Narrowed to a canary's partitions while there is one."""
    scope, ladder = settings.scope, settings.ladder
    canary = ladder.canary_partitions if ladder.stage == "canary" else []
    return Scope(
        sla_partitions=frozenset(scope.sla_partitions),
        partitions=frozenset(canary or scope.partitions),
        excluded_users=frozenset(scope.excluded_users),
        excluded_accounts=frozenset(scope.excluded_accounts),
        excluded_qos=frozenset(scope.excluded_qos),
        min_age_s=scope.min_age_s,
        max_writes_per_hour=settings.limits.max_changes_per_job_hour,
        switchback=ladder.switchback(),
    )
