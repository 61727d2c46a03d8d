"""Every key of rltuned.toml: type, default, bounds, unit and why; the documentation is made of it.

Each table turns itself into the frozen dataclass that lives beside the code it steers, so no floor
below ever sees this module.
"""

from dataclasses import replace
from typing import Literal, Self

from pydantic import model_validator

from rltuned.core.decide import Knobs, PlacementMode
from rltuned.core.numbers import WriteMode, Writing
from rltuned.core.order import Order
from rltuned.core.select import SETTLE_S, Scope
from rltuned.policies.shelf import MODELS_DIR
from rltuned.settings.controller import HaKeys, LoadKeys, SlurmKeys, check_lease
from rltuned.settings.keeping import JournalKeys
from rltuned.settings.key import FilePath, Keys, Names, OptionalPath, key, table
from rltuned.settings.placing import OverSubscribeKeys, PlacementKeys, tuning
from rltuned.settings.running import DaemonKeys
from rltuned.settings.trust import LadderKeys, check_canary

HTTP_PORT = 9841
"""Where /metrics listens; outside the ports that Slurm and the usual exporters take."""


_HOUR_S = 3_600.0


class PolicyKeys(Keys):
    """The policy that ranks the jobs."""

    name: str = key(
        "delay",
        "",
        "A rule (delay, fcfs, sjf, saf, smallest, fit_first, wfp3, unicep, f1, multifactor) or "
        "model:NAME for a trained one in models_dir. Where the model cannot be used the daemon "
        "does not start, and no other policy takes its place.",
        min_length=1,
    )
    models_dir: FilePath = key(
        MODELS_DIR,
        "",
        "Folder of the model bundles, one folder each. If the default folder is absent, the "
        "bundles of the pip installation or of the checkout are used.",
    )
    top_k: int = key(
        16,
        "jobs",
        "Number of jobs at the head of the new order for which a placement is computed.",
        ge=0,
        le=10_000,
    )
    placement: PlacementMode = key(
        "pack",
        "",
        "pack: fewest nodes, then least GPUs left over. spread: most free GPUs first. milp: the "
        "first top_k jobs together, by a solver ([placement]).",
    )


class ScopeKeys(Keys):
    """Which jobs are in scope. Everything else is never touched."""

    sla_partitions: Names = key(
        [],
        "",
        "Partitions that are never touched. A job of several partitions that names one of them "
        "counts as an SLA job.",
    )
    partitions: Names = key(
        [],
        "",
        "Partitions to manage; empty = all that are not SLA partitions.",
    )
    excluded_users: Names = key([], "", "Users whose jobs are never touched.")
    excluded_accounts: Names = key([], "", "Accounts whose jobs are never touched.")
    excluded_qos: Names = key([], "", "QOS whose jobs are never touched.")
    min_age_s: float = key(
        SETTLE_S,
        "seconds",
        "Jobs younger than this wait for the next cycle: Slurm may still be writing their "
        "accounting row and would stall on an update.",
        ge=0.0,
        le=3600.0,
    )

    def rules(self) -> Scope:
        return Scope(
            sla_partitions=frozenset(self.sla_partitions),
            partitions=frozenset(self.partitions),
            excluded_users=frozenset(self.excluded_users),
            excluded_accounts=frozenset(self.excluded_accounts),
            excluded_qos=frozenset(self.excluded_qos),
            min_age_s=self.min_age_s,
        )

    @model_validator(mode="after")
    def _scopes_do_not_overlap(self) -> Self:
        both = sorted(set(self.partitions) & set(self.sla_partitions))
        if both:
            raise ValueError(f"{', '.join(both)} is both in partitions and in sla_partitions")
        return self


class OrderKeys(Keys):
    """How long a job may be asked to step back."""

    stretch: float = key(
        Order().stretch,
        "",
        "Every delay of a policy is multiplied by it: the rule `delay` asks a job to step back by "
        "stretch x time limit x sqrt(GPUs). 0 = first come, first served.",
        ge=0.0,
        le=100.0,
    )
    clip: float = key(
        Order().clip,
        "",
        "No job is asked for more than clip x time limit x sqrt(GPUs), whatever the policy says.",
        ge=0.0,
        le=100.0,
    )
    max_delay_s: float = key(
        Order().max_delay_s,
        "seconds",
        "The longest delay: no job that becomes eligible more than this after another one is "
        "put before it because of rltuned. If a job's own number in Slurm leaves less room, the "
        "delay is at most that room.",
        ge=0.0,
        le=31_536_000.0,
    )
    points_per_hour: float = key(
        Writing().own_slope * _HOUR_S,
        "points",
        "What an hour of waiting is worth under priority/multifactor without slurmdbd, where "
        "slurmctld counts no age and rltuned adds it. Elsewhere PriorityWeightAge and "
        "PriorityMaxAge decide.",
        gt=0.0,
        le=1_000_000.0,
    )

    newcomers: OptionalPath = key(
        None,
        "",
        "File by which deploy/job_submit.lua gives new jobs their delay at submission, written in "
        "every cycle; absent = newcomers stand at the neutral delay until the next cycle. Only "
        "the daemon's user may write to its folder, and SlurmUser must be able to read there. "
        "Policy `delay`, stage full, site factors, slurmdbd.",
    )

    def order(self) -> Order:
        return Order(self.stretch, self.clip, self.max_delay_s)


class LimitKeys(Keys):
    """How much one cycle may change, and by which field."""

    write_mode: WriteMode = key(
        Writing().mode,
        "",
        "auto: site factors under priority/multifactor, priorities under priority/basic. "
        "site_factor: `SiteFactor=`, added to the multifactor sum and exactly reversible. "
        "priority: `Priority=`; under multifactor the job's age and fair share then count only "
        "as rltuned computes them.",
    )
    max_changes: int = key(
        Writing().max_changes,
        "jobs",
        "At most so many jobs are written per cycle, the largest errors first; the others follow.",
        ge=0,
        le=100_000,
    )
    hysteresis: float = key(
        Writing().hysteresis,
        "",
        "A delay that moves by less than this share is not written again; that of a rule, which "
        "moves with the job's own request alone, is from 0.3 on.",
        ge=0.0,
        lt=1.0,
    )
    max_changes_per_job_hour: int = key(
        30,
        "changes",
        "Most changes of one job within an hour; then it keeps its number until the hour is over. "
        "Giving back is always allowed. Counted in the journal, so a restart does not reset it.",
        ge=1,
        le=100_000,
    )

    def writing(self, order: OrderKeys) -> Writing:
        return Writing(
            mode=self.write_mode,
            own_slope=order.points_per_hour / _HOUR_S,
            max_changes=self.max_changes,
            hysteresis=self.hysteresis,
        )


class HttpKeys(Keys):
    """The metrics and health endpoint."""

    enabled: bool = key(True, "", "Serve /metrics, /healthz, /readyz and the status page at /.")
    address: str = key(
        "127.0.0.1",
        "",
        "Address to listen on. Loopback by default: there is no login, so open it only to the "
        "network of your Prometheus.",
        pattern=r"^[0-9A-Za-z:.%_-]{1,253}$",
    )
    port: int = key(HTTP_PORT, "", "TCP port; 0 = any free one.", ge=0, le=65535)
    hosts: Names = key(
        [],
        "",
        "Further names by which a browser may ask for the status page, for example that of a "
        "proxy. Always allowed: addresses, localhost and this machine's own name. A foreign page "
        "cannot read it under another name. /metrics is answered under any name.",
    )
    tls_cert: OptionalPath = key(
        None, "", "PEM file of the server's certificate and chain: speak TLS. Read at start."
    )
    tls_key: OptionalPath = key(None, "", "PEM file of its key, without a password.")
    tls_clients: OptionalPath = key(
        None, "", "PEM file of authorities: only clients with a certificate of theirs are accepted."
    )
    jobs: bool = key(
        False,
        "",
        "Show single jobs on the status page: number, partition, GPUs, place and priority before "
        "and after. Off, because every user who reaches the port would see them, also all on this "
        "machine, and also where Slurm's PrivateData hides jobs. Job names are never read.",
    )
    users: bool = key(False, "", "Also show the users of these jobs.")

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key need each other")
        if self.tls_clients is not None and self.tls_cert is None:
            raise ValueError("tls_clients needs tls_cert and tls_key")
        return self


class LogKeys(Keys):
    """Log lines on standard error."""

    format: Literal["json", "console"] = key(
        "console", "", "json: one object per line, for collectors. console: for people."
    )
    level: Literal["debug", "info", "warning", "error"] = key(
        "info", "", "Lines below this level are dropped."
    )


class Settings(Keys):
    """The whole file."""

    daemon: DaemonKeys = table(DaemonKeys, "The loop: when it runs and what it may do.")
    policy: PolicyKeys = table(PolicyKeys, "The policy that ranks the jobs.")
    scope: ScopeKeys = table(ScopeKeys, "Which jobs are in scope. Others are never touched.")
    order: OrderKeys = table(OrderKeys, "How long a job may be asked to step back.")
    limits: LimitKeys = table(LimitKeys, "How much one cycle may change.")
    ladder: LadderKeys = table(LadderKeys, "How far rltuned is trusted.")
    placement: PlacementKeys = table(PlacementKeys, 'The solver behind `placement = "milp"`.')
    oversubscribe: OverSubscribeKeys = table(
        OverSubscribeKeys, "Lets exclusive jobs share their nodes. Off by default."
    )
    slurm: SlurmKeys = table(SlurmKeys, "How Slurm's commands are called.")
    load: LoadKeys = table(LoadKeys, "When slurmctld counts as too busy.")
    ha: HaKeys = table(HaKeys, "A second daemon beside the backup slurmctld. Read at start only.")
    journal: JournalKeys = table(JournalKeys, "How much of the past is kept. Read at start only.")
    http: HttpKeys = table(HttpKeys, "Metrics and health for Prometheus. Read at start only.")
    log: LogKeys = table(LogKeys, "Log lines, on standard error. Read at start only.")

    @model_validator(mode="after")
    def _lease_outlives_a_cycle(self) -> Self:
        check_lease(self.ha, self.daemon.interval_s, self.slurm.timeout_s)
        return self

    @model_validator(mode="after")
    def _canary_is_within_the_scope(self) -> Self:
        scope = self.scope
        check_canary(self.ladder, scope.partitions, scope.sla_partitions, self.daemon.interval_s)
        return self

    def knobs(self) -> Knobs:
        """What `decide` is steered by."""
        most = self.limits.max_changes_per_job_hour
        scope = replace(self.scope.rules(), max_writes_per_hour=most)
        return Knobs(
            rules=self.ladder.rules(scope),
            order=self.order.order(),
            writing=self.limits.writing(self.order),
            top_k=self.policy.top_k,
            placement=self.policy.placement,
            tuning=tuning(self.placement, self.oversubscribe),
        )
