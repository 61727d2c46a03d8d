"""The tables of the file, and the whole.

Every key is declared once, with its type, default, bounds, unit and description; reading, errors,
`config show`, `config init` and the reference pages follow from that. Nothing here needs numpy.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from rltuned.core.ladder import MOST_APART_S, Ladder, Rung, Switchback
from rltuned.domain.kinds import KIND_NAMES, KindName
from rltuned.journal.retention import Keeping
from rltuned.policies.shelf import PREDICTOR_NAME
from rltuned.slurm.run import SlurmCli
from rltuned.slurm.site import Bounds

if TYPE_CHECKING:
    from rltuned.core.decide import Knobs

_LONGEST: Final = 4_095
_LONGEST_NAME: Final = 255
_KERNEL: Final = (("dev",), ("proc",), ("sys",))


def key(default: Any, unit: str = "", **bounds: Any) -> Any:
    """A key with a unit ("" = none) or bounds; the text below it is its description."""
    return Field(default=default, json_schema_extra={"unit": unit}, **bounds)


def is_file_name(name: str) -> bool:
    """Whether a file or folder can bear this name: one part of a path, as Linux has it."""
    length = len(name.encode(errors="surrogateescape"))
    return 0 < length <= _LONGEST_NAME and name == Path(name).name and "\0" not in name


def _possible(path: Path | None) -> Path | None:
    if path is None:
        return None
    if "\0" in str(path):
        raise ValueError("a path cannot hold a NUL character")
    parts = path.parts[1:] if path.is_absolute() else path.parts
    if not all(part == ".." or is_file_name(part) for part in parts) or len(str(path)) > _LONGEST:
        raise ValueError(f"a path has {_LONGEST} characters at most, and {_LONGEST_NAME} in a name")
    return path


def _from_the_root(path: Path | None) -> Path | None:
    """The daemon and Slurm's commands run in /, so nothing is relative to a folder of a user's."""
    if path is None:
        return None
    if not path.is_absolute():
        raise ValueError(f"must be an absolute path: {path} depends on where rltuned starts")
    if ".." in path.parts:
        raise ValueError("must be without ..")
    return path


def _own_folder(path: Path | None) -> Path | None:
    """Refuse what cannot be a folder of rltuned's own. Nothing is looked at: restore must read the
    settings whatever lies there.
    """
    if path is None:
        return None
    is_kernels = path.parts[1:2] in _KERNEL and path.parts[2:3] != ("shm",)
    if path == Path("/") or is_kernels:
        raise ValueError(f"{path} cannot be a folder of rltuned's own")
    return path


def _a_folder_name(name: str) -> str:
    if name in {".", ".."} or not is_file_name(name):
        raise ValueError("must be the name of one folder, without /")
    return name


def _not_empty(value: Any) -> Any:
    if value == "":
        raise ValueError("a path cannot be empty")
    return value


def _a_name(name: str) -> str:
    """Refuse what no name of Slurm can be: it would protect no job, without a sign."""
    if not name.isprintable() or name != name.strip() or "," in name:
        raise ValueError("must be one name, without commas and without blanks around it")
    return name


_CHECKS = (
    Field(strict=False),
    AfterValidator(_possible),
    AfterValidator(_from_the_root),
    BeforeValidator(_not_empty),
)
FilePath = Annotated[Path, *_CHECKS]
OptionalPath = Annotated[Path | None, *_CHECKS]
FolderPath = Annotated[FilePath, AfterValidator(_own_folder)]
OptionalFolder = Annotated[OptionalPath, AfterValidator(_own_folder)]
FolderName = Annotated[str, AfterValidator(_a_folder_name)]
OptionalName = Annotated[str, AfterValidator(_a_name)]
"""Empty = none."""
Names = list[Annotated[str, Field(min_length=1), AfterValidator(_a_name)]]


class Keys(BaseModel):
    """A table of the file: no unknown key, no silent conversion. Its docstring describes it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False
    )


# -- The tables ------------------------------------------------------------------------------------

HTTP_PORT = 9841
"""Where /metrics listens; outside the ports that Slurm and the usual exporters take."""
_HOUR_S: Final = 3_600.0


class DaemonKeys(Keys):
    """The loop: when it runs and what it may do."""

    interval_s: float = key(60.0, "seconds", ge=1.0, le=3600.0)
    """From the start of one cycle to the start of the next. Slurm's own priorities move about as
    often; a shorter interval costs slurmctld more than it helps."""
    state_dir: FolderPath = Path("/var/lib/rltuned")
    """Folder of the journal. Without a writable journal nothing is written to Slurm, because
    nothing could be restored."""
    pause_file: FilePath = Path("/run/rltuned/PAUSE")
    """While this file exists nothing is written. It is checked right before every write. The
    socket over which plan, explain and status ask the daemon lies in the same folder."""
    max_snapshot_age_s: float = key(120.0, "seconds", ge=1.0, le=3600.0)
    """Nothing is written from an older snapshot than this: a daemon that was stopped must read the
    queue again first."""

    @property
    def socket(self) -> Path:
        """Where the daemon answers users of its machine."""
        return self.pause_file.with_name("socket")


class PolicyKeys(Keys):
    """The policy that ranks the jobs."""

    name: str = key("model:rltune", min_length=1)
    """model:NAME for a trained one in models_dir, model:/FOLDER for one elsewhere, a rule (delay,
    qssf, fcfs, sjf, saf, smallest, fit_first, wfp3, unicep, f1, multifactor), plugin:NAME for one
    of another installed package, or tuned. That is what `rltuned models promote` has put in force,
    with trust, own, share, max_delay_s and predictor; until then the default. If the default model
    cannot be used, or gives no numbers, the rule delay orders in its place; if another policy
    cannot be used the daemon does not start."""
    trust: float = key(0.7, ge=0.0, le=1.0)
    """How much of a trained policy's corrections of the rule delay counts: each correction is taken
    to this power. 0 = the rule, 1 = as trained. A rule has no corrections; a generation of
    `rltuned tune` brings its own trust."""
    models_dir: FilePath = Path("/usr/share/rltuned/models")
    """Folder of the model bundles, one folder each. If the default folder is absent, the bundles of
    the pip installation or of the checkout are used."""
    placement: Literal["pack", "spread", "milp"] = "milp"
    """How the first 16 jobs are placed for `plan` and `explain`. pack: fewest nodes, then least
    GPUs left over. spread: most free GPUs first. milp: a solver packs or spreads each of up to 64.
    It also says which exclusive ones share nodes."""


class ScopeKeys(Keys):
    """Which jobs are in scope. Others are never touched."""

    sla_partitions: Names = key([])
    """Partitions that are never touched, and with them every job that could run in one of them."""
    partitions: Names = key([])
    """Partitions to manage; empty = all that are not SLA partitions. A job that could run in
    others, too, is ordered, but never before its place in Slurm's own order."""
    excluded_users: Names = key([])
    """Users whose jobs are never touched."""
    excluded_accounts: Names = key([])
    """Accounts whose jobs are never touched."""
    excluded_qos: Names = key([])
    """QOS whose jobs are never touched."""
    min_age_s: float = key(10.0, "seconds", ge=0.0, le=3600.0)
    """Jobs younger than this wait: Slurm may still write their accounting row."""

    @model_validator(mode="after")
    def _scopes_do_not_overlap(self) -> Self:
        both = sorted(set(self.partitions) & set(self.sla_partitions))
        if both:
            raise ValueError(f"{', '.join(both)} is both in partitions and in sla_partitions")
        return self


class OrderKeys(Keys):
    """How much later others may become eligible and still overtake a job: its delay."""

    own: float = key(0.1, ge=0.0, le=100.0)
    """The part of a delay in the unit of the job: a job may be overtaken by jobs that become
    eligible within own x planned run time x sqrt(GPUs) after it."""
    share: float = key(0.75, ge=0.0, le=100.0)
    """The part in the unit of the queue. The backlog is how long the cluster needs for what waits
    now; share x backlog is added for the largest job, in proportion less for smaller ones. Raise it
    where the mean wait matters most, lower it where long waits do. `rltuned backtest` chooses by
    the site's own record. own = share = 0: first come, first served."""
    max_delay_s: float = key(604_800.0, "seconds", ge=0.0, le=31_536_000.0)
    """The longest delay: no job that becomes eligible more than this after another one is put
    before it because of rltuned."""


class LimitKeys(Keys):
    """How much one cycle may change."""

    write_mode: Literal["auto", "site_factor", "priority"] = "auto"
    """auto: site factors under priority/multifactor, priorities under priority/basic. site_factor:
    `SiteFactor=`, added to the multifactor sum and exactly reversible. priority: `Priority=`. Under
    multifactor the job's age and fair share then count only as rltuned computes them."""
    max_changes: int = key(500, "jobs", ge=0, le=100_000)
    """At most so many jobs are written per cycle, the others in the next ones. Users take turns;
    of each the first writes come first, then the largest errors."""
    hysteresis: float = key(0.55, ge=0.0, lt=1.0)
    """A delay that moves by less than this share is not written again. The first write of a job
    needs 0.3 at most."""


class LadderKeys(Keys):
    """How far rltuned is trusted."""

    stage: Literal["observe", "shadow", "canary", "full"] = "observe"
    """observe: read and publish waits. shadow: also decide and log it. canary: write, in blocks of
    time that alternate with blocks without delays. full: write. Only a person goes up; when:
    docs/rollout.md."""
    canary_block_s: float = key(14_400.0, "seconds", ge=600.0, le=604_800.0)
    """Length of a block; its first quarter is no evidence. Each partition has pairs of an on block
    (delays are written) and an off block (they are withdrawn); a coin decides which comes first."""
    canary_partitions: Names = key([])
    """A canary writes in these partitions only; empty = in all that rltuned manages."""
    canary_salt: str = ""
    """Any text: the secret of the coin; another one draws the blocks again. Empty = a random secret
    in the journal."""
    full_off_share: float = key(0.0, ge=0.0, le=0.5)
    """At stage full, the share of the time for off blocks, which measure the effect. 0 = none."""

    def ladder(self) -> Ladder:
        return Ladder(Rung(self.stage))

    def switchback(self) -> Switchback | None:
        """When delays are on; None = always, or never."""
        share = {"canary": 0.5, "full": self.full_off_share}.get(self.stage, 0.0)
        if not share:
            return None
        return Switchback(self.canary_salt, self.canary_block_s, self.washout_s, share)

    @property
    def washout_s(self) -> float:
        """The first part of each block, which is no evidence, because the queue still shows the
        effect of the block before.
        """
        return self.canary_block_s / 4


class SlaKeys(Keys):
    """A class of jobs with a promise, one table each: its jobs have delay 0."""

    partition: OptionalName = ""
    """Jobs that name this partition and no other. Each class names one of partition, qos and
    account; the first that fits a job holds. In a partition of scope.sla_partitions nothing is
    written; there breaches are counted alone."""
    qos: OptionalName = ""
    """Jobs of this QOS."""
    account: OptionalName = ""
    """Jobs of this account."""
    max_wait_s: float = key(900.0, "seconds", gt=0.0, le=31_536_000.0)
    """The longest wait that is promised, from when a job is eligible. Longer waits are counted."""

    @property
    def name(self) -> tuple[Literal["partition", "qos", "account"], str]:
        """What makes a job one of the class, and its value."""
        if self.partition:
            return "partition", self.partition
        return ("qos", self.qos) if self.qos else ("account", self.account)

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        if sum(map(bool, (self.partition, self.qos, self.account))) != 1:
            raise ValueError("must name one of partition, qos and account")
        return self


class OverSubscribeKeys(Keys):
    """Lets exclusive jobs share their nodes. Off by default."""

    scope: Names = key([])
    """Partitions in which a pending --exclusive job may be set to OverSubscribe=YES when its node
    would keep others waiting. Needs `policy.placement = "milp"`. Empty = never. It cannot be
    undone in full: see docs/operations.md."""


class PredictorKeys(Keys):
    """Predictions of run times, and what they are made from."""

    enabled: bool = True
    """Predict the run time of waiting jobs from jobs that ended. false = every policy goes by time
    limits alone. Read at start only."""
    model: FolderName = PREDICTOR_NAME
    """Folder of the predictor in policy.models_dir; the shipped one lies there too. `rltuned train
    predictor` makes one of a site's own jobs."""
    kinds: list[KindName] = key(list(KIND_NAMES))
    """Texts by which jobs are likened to ended ones: the job's name without digits, the path of its
    script or command, its folder, the first words of its submit line. rltuned keeps salted digests
    of them and never the texts. Empty = none is asked for."""


class TuneKeys(Keys):
    """The nightly `rltuned tune`, and the price that an order may have."""

    promote: Literal["never", "canary", "auto"] = "never"
    """What happens to an order that passes its test. With never it becomes the
    candidate, and a person promotes it. With canary the daemon alternates it in time with the order
    in force, and promotes it if it helps. With auto it is put in force at once, at most once a
    week. The daemon follows where policy.name is tuned."""
    longest: float = key(1.35, ge=1.0, le=100.0)
    """The price of an order: its longest wait, at most so many times that of Slurm's own order on
    the same jobs of this site's record. The order that keeps it with the shortest waits and
    slowdowns is chosen. A night says what the next step of the price would buy."""


class SlurmKeys(Keys):
    """How Slurm's commands are called."""

    bin_dir: OptionalPath = None
    """Folder of squeue, sinfo, sprio and scontrol; absent = found through PATH."""
    conf: OptionalPath = None
    """slurm.conf to use; absent = where Slurm was built to find it. SLURM_CONF of the environment
    is not used."""
    timeout_s: float = key(20.0, "seconds", ge=1.0, le=600.0)
    """Longest time that one command may take before it is ended."""
    pyslurm_python: OptionalPath = None
    """Python interpreter that has pyslurm: what a job is and how it stands comes from there, and
    what it asks for from squeue. If pyslurm is missing or of another release than slurmctld, squeue
    replaces it. Absent = squeue alone."""

    def cli(self) -> SlurmCli:
        return SlurmCli(self.bin_dir, self.conf, self.timeout_s)


class LoadKeys(Keys):
    """When slurmctld counts as too busy, by sdiag. Where both bounds are 0 it is not asked."""

    max_server_threads: int = key(100, ge=0, le=256)
    """RPCs that slurmctld serves at this moment; its own bound is 256. 0 = it does not count."""
    max_backfill_s: float = key(120.0, "seconds", ge=0.0)
    """Duration of the last backfill cycle. Set it above what is usual on your site. 0 = it
    does not count."""

    def bounds(self) -> Bounds | None:
        """None = sdiag is not asked."""
        threads, backfill_s = self.max_server_threads, self.max_backfill_s
        return Bounds(threads, backfill_s=backfill_s) if threads or backfill_s else None


class HaKeys(Keys):
    """A second daemon beside the backup slurmctld. Read at start only."""

    lease_dir: OptionalFolder = None
    """Folder that the hosts of all slurmctld share and where rltuned may write: not
    StateSaveLocation itself, but a place beside it. Only the daemon beside the acting slurmctld
    writes, while it holds the lease there. Absent = this is the only daemon."""
    host: str = key("", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    """This machine's name as SlurmctldHost has it; empty = its short host name."""


class JournalKeys(Keys):
    """How much of the past is kept, of 90 days. Read at start only."""

    max_mib: int = key(1024, "MiB", ge=16, le=1_048_576)
    """Beyond this the oldest snapshots and plans are removed, then the oldest finished changes. A
    cycle with 10,000 pending jobs takes half a MiB to one."""

    def keeping(self) -> Keeping:
        return Keeping(max_mib=self.max_mib)


class HttpKeys(Keys):
    """Metrics and health for Prometheus. Read at start only."""

    enabled: bool = True
    """Serve /metrics, /healthz, /readyz and the status page at /."""
    address: str = key("127.0.0.1", pattern=r"^[0-9A-Za-z:.%_-]{1,253}$")
    """Address to listen on. There is no login and no TLS: open it only to the network of your
    Prometheus, and put a proxy in front of it for others."""
    port: int = key(HTTP_PORT, ge=0, le=65535)
    """TCP port; 0 = any free one."""
    jobs: bool = False
    """Show single jobs on the status page: number, partition, GPUs, place and priority before and
    after. Every user who reaches the port sees them, also where Slurm's PrivateData hides jobs."""
    users: bool = False
    """Also show the users of these jobs."""


class LogKeys(Keys):
    """Log lines, on standard error. Read at start only."""

    format: Literal["json", "console"] = "console"
    """json: one object per line, for collectors. console: for people."""


class Settings(Keys):
    """The whole file."""

    daemon: DaemonKeys = DaemonKeys()
    policy: PolicyKeys = PolicyKeys()
    scope: ScopeKeys = ScopeKeys()
    order: OrderKeys = OrderKeys()
    limits: LimitKeys = LimitKeys()
    ladder: LadderKeys = LadderKeys()
    sla: list[SlaKeys] = key([], max_length=64)
    oversubscribe: OverSubscribeKeys = OverSubscribeKeys()
    predictor: PredictorKeys = PredictorKeys()
    tune: TuneKeys = TuneKeys()
    slurm: SlurmKeys = SlurmKeys()
    load: LoadKeys = LoadKeys()
    ha: HaKeys = HaKeys()
    journal: JournalKeys = JournalKeys()
    http: HttpKeys = HttpKeys()
    log: LogKeys = LogKeys()

    @model_validator(mode="after")
    def _canary_is_within_the_scope(self) -> Self:
        """No canary outside the scope, and no cycles too far apart for its blocks."""
        ladder, scope, interval_s = self.ladder, self.scope, self.daemon.interval_s
        if ladder.switchback() is not None and interval_s > MOST_APART_S:
            raise ValueError(
                f"daemon.interval_s: {interval_s:g} s is too long for a switchback, "
                f"at most {MOST_APART_S:g} s"
            )
        outside = set(ladder.canary_partitions) & set(scope.sla_partitions)
        if scope.partitions:
            outside |= set(ladder.canary_partitions) - set(scope.partitions)
        if outside:
            raise ValueError(
                f"ladder.canary_partitions: {', '.join(sorted(outside))} is not in "
                "scope.partitions, or is an SLA partition"
            )
        return self

    @model_validator(mode="after")
    def _classes_are_apart(self) -> Self:
        names = [one.name for one in self.sla]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"sla: two classes have {' = '.join(twice[0])}")
        return self

    def knobs(self) -> "Knobs":
        """What `decide` is steered by; a canary narrows the scope to its partitions."""
        from rltuned.core import decide, milp, numbers, order, select  # noqa: PLC0415 - numpy

        scope, ladder, share = self.scope, self.ladder, self.oversubscribe
        canary = ladder.canary_partitions if ladder.stage == "canary" else []
        return decide.Knobs(
            rules=select.Scope(
                sla_partitions=frozenset(scope.sla_partitions),
                partitions=frozenset(canary or scope.partitions),
                excluded_users=frozenset(scope.excluded_users),
                excluded_accounts=frozenset(scope.excluded_accounts),
                excluded_qos=frozenset(scope.excluded_qos),
                min_age_s=scope.min_age_s,
                max_writes_per_hour=max(1, round(_HOUR_S / 2 / self.daemon.interval_s)),
                switchback=ladder.switchback(),
            ),
            order=order.Order(self.order.own, self.order.share, max_delay_s=self.order.max_delay_s),
            writing=numbers.Writing(
                mode=self.limits.write_mode,
                max_changes=self.limits.max_changes,
                hysteresis=self.limits.hysteresis,
            ),
            sla=tuple(order.SlaClass(*keys.name, keys.max_wait_s) for keys in self.sla),
            placement=self.policy.placement,
            tuning=milp.Tuning(sharing=milp.Sharing(frozenset(share.scope))),
        )


class RescuedScope(Keys):
    """The partitions that the daemon manages; empty = all."""

    model_config = ConfigDict(extra="ignore")

    partitions: Names = key([])


def _or_all(table: object, check: ValidatorFunctionWrapHandler) -> RescuedScope:
    """Also where the table has an error."""
    try:
        found: RescuedScope = check(table)
    except ValidationError:
        return RescuedScope()
    return found


class Rescue(Keys):
    """What `rltuned restore` reads: where the journal lies, how Slurm is called, and the scope.

    An error in any other table stops the daemon, and must not stop the command that takes the
    daemon's changes back.
    """

    model_config = ConfigDict(extra="ignore")

    daemon: DaemonKeys = DaemonKeys()
    slurm: SlurmKeys = SlurmKeys()
    ha: HaKeys = HaKeys()
    journal: JournalKeys = JournalKeys()
    scope: Annotated[RescuedScope, WrapValidator(_or_all)] = RescuedScope()
