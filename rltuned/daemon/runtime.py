"""What the loop runs on, and what it reports to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from rltuned.core.decide import Knobs, Policy
from rltuned.core.ladder import Ladder
from rltuned.core.milp import Solver
from rltuned.daemon.following import BlockTrial, Following
from rltuned.daemon.lease import Lease
from rltuned.daemon.report import CycleReport
from rltuned.domain.plan import Backend
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.site import Bounds, Load
from rltuned.text import trusted


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything that a reload may exchange; None = there is none.

    digest, schema, ranges: of the policy's model. in_place_of: the model for which the rule stands
    in, and why; empty = none. gauge: how busy slurmctld is; bounds: too busy from there on.
    clock_off_s: how far slurmctld's clock is ahead. lease: of the one daemon that writes; acting:
    host of the acting slurmctld. generation: whose order this is; empty = the settings'. following:
    which generation should be in force. trial: that is going on; this order has its turn in it.
    """

    backend: Backend
    policy: Policy
    knobs: Knobs
    dry_run: bool
    interval_s: float
    max_backoff_s: float
    pause_file: Path
    digest: str = ""
    schema: str = ""
    in_place_of: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    solver: Solver | None = None
    gauge: Callable[[], Load] | None = None
    bounds: Bounds = Bounds()  # noqa: RUF009 - frozen
    clock_off_s: Callable[[], float | None] | None = None
    lease: Lease | None = None
    acting: Callable[[], str] | None = None
    ladder: Ladder = field(default_factory=Ladder)
    generation: str = ""
    following: Following | None = None
    trial: BlockTrial | None = None

    @property
    def model(self) -> str:
        """What evidence is about: the trial, the generation, the model's digest with its trust,
        or the rule.
        """
        if self.trial is not None:
            return self.trial.model
        whole, trust = self.generation or self.digest or self.policy.name, self.policy.trust
        # as trained it is what it was before there was any trust
        return whole if self.generation or trust in {None, 1.0} else trusted(whole, trust)

    def by_rule(self, why: str) -> "Rig":
        """The same with the rule that the network corrects, because it gives no numbers."""
        return replace(
            self, policy=BASELINES["delay"], digest="", schema="", ranges={},
            in_place_of=f"{self.policy.name}: {why}",
        )  # fmt: skip


class Audience(Protocol):
    """What events are reported to: metrics, log lines, systemd, a table on the terminal."""

    def cycle(self, report: CycleReport) -> None: ...

    def alive(self) -> None:
        """The loop got a step further, or waits as it should."""
        ...

    def unexpected(self, error: Exception) -> None: ...

    def reloading(self) -> None: ...

    def loaded(self, rig: Rig) -> None: ...

    def not_loaded(self, reason: str) -> None: ...
