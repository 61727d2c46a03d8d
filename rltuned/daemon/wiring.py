"""From checked settings to what the loop runs on; the same way at start and at every reload.

A policy that does not exist is a SettingsError, a model that cannot be used a ModelError.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rltuned.core.decide import Knobs, Policy
from rltuned.core.ladder import Ladder
from rltuned.core.memory import RunTimeMemory
from rltuned.core.milp import Solver
from rltuned.daemon.following import BlockTrial, Following
from rltuned.daemon.lease import Lease
from rltuned.daemon.logger import Log
from rltuned.daemon.run_times import RunTimeLearner
from rltuned.domain.kinds import SALT_BYTES
from rltuned.domain.plan import Backend
from rltuned.errors import ModelError, RltunedError, SettingsError
from rltuned.policies import files
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.generations import MODEL, PREDICTOR, TUNED, Generations
from rltuned.policies.plugins import Plugin, hint, plugin_names, policy_named
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import MODEL_PREFIX, PREDICTOR_NAME, find_bundle, find_predictor
from rltuned.settings import Loaded, Settings
from rltuned.settings.keys import PolicyKeys, is_file_name
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.site import Bounds, Load
from rltuned.solver import Cbc
from rltuned.text import trusted

RULE_HINT: Final = 'a rule needs no model: policy.name = "delay"'
DEFAULT: Final = PolicyKeys().name
RULE: Final = BASELINES["delay"]
"""What a network corrects, and what orders in the place of the default one if it cannot be used."""


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything that a reload may exchange; None = there is none.

    in_place_of: the model for which the rule stands in, and why; empty = none. gauge: how busy
    slurmctld is; bounds: too busy from there on. clock_off_s: how far slurmctld's clock is ahead.
    lease: of the one daemon that writes; acting: host of the acting slurmctld. generation: whose
    order this is; empty = the settings'. following: which generation should be in force. trial:
    that is going on; this order has its turn in it.
    """

    backend: Backend
    policy: Policy
    knobs: Knobs
    dry_run: bool
    interval_s: float
    pause_file: Path
    in_place_of: str = ""
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
    def digest(self) -> str:
        """Of the policy's model; "" = no model."""
        return self.policy.digest if isinstance(self.policy, Actor | Plugin) else ""

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
        return replace(self, policy=RULE, in_place_of=f"{self.policy.name}: {why}")


def untuned(settings: Settings) -> Settings:
    """The same with what `policy.name = "tuned"` stands for without a generation."""
    policy = settings.policy.model_copy(update={"name": DEFAULT})
    return settings.model_copy(update={"policy": policy})


def in_force(loaded: Loaded, at: float) -> Loaded:
    """Settings with what `policy.name = "tuned"` stands for; others are returned as they are.

    A generation gives policy, trust, own, share, max_delay_s and predictor. While none was promoted
    the DEFAULT is meant, with the settings' own order. at: Unix seconds, for a candidate on
    trial. Raises ModelError: the generation cannot be used.
    """
    settings = loaded.settings
    if settings.policy.name != TUNED:
        return loaded
    name, _ = Following(settings).turn(at)
    if not name:
        return replace(loaded, settings=untuned(settings), generation="")
    found = Generations(settings.daemon.state_dir).read(name)
    own = found.manifest
    policy = {
        "name": f"{MODEL_PREFIX}{MODEL}" if own.policy == MODEL else own.policy,
        "trust": own.trust,
        "models_dir": found.path,
    }
    order = {"own": own.own, "share": own.share, "max_delay_s": own.max_delay_s}
    predictor = {"model": PREDICTOR if own.site_predictor else PREDICTOR_NAME}
    changed = {
        "policy": settings.policy.model_copy(update=policy),
        "order": settings.order.model_copy(update=order),
        "predictor": settings.predictor.model_copy(update=predictor),
    }
    return replace(loaded, settings=settings.model_copy(update=changed), generation=found.name)


def build_rig(
    loaded: Loaded, backend: Backend, lease: Lease | None = None, *, dry_run: bool = False
) -> Rig:
    """All that the loop may exchange. lease: None = no other daemon. dry_run: write nothing."""
    settings = loaded.settings
    policy, in_place_of = find_policy(loaded)
    following = None if loaded.generation is None else Following(settings)
    trial = None if following is None else following.turn(0.0)[1]
    knobs, bounds = settings.knobs(), settings.load.bounds()
    if trial is not None:
        knobs = replace(knobs, rules=replace(knobs.rules, switchback=trial.switchback))
    rig = Rig(
        backend=backend,
        policy=policy,
        knobs=knobs,
        dry_run=dry_run,
        interval_s=settings.daemon.interval_s,
        pause_file=settings.daemon.pause_file,
        in_place_of=in_place_of,
        solver=Cbc() if settings.policy.placement == "milp" else None,
        bounds=bounds or Bounds(),
        ladder=settings.ladder.ladder(),
        generation=loaded.generation or "",
        following=following,
        trial=trial,
    )
    if not isinstance(backend, SlurmBackend):
        return rig
    gauge = backend.load if bounds is not None else None
    off_s, acting = backend.clock_off_s, backend.acting
    return replace(rig, gauge=gauge, clock_off_s=off_s, lease=lease, acting=acting)


def reloaded(build: Callable[[], Rig]) -> Rig:
    """What `build` makes. Raises SettingsError, ModelError: of a file; a bug ends the daemon."""
    try:
        return build()
    except (SettingsError, ModelError):
        raise
    except (RltunedError, OSError, ImportError, MemoryError, RuntimeError, ValueError) as error:
        reason = str(error) or "no reason is given"
        raise SettingsError(f"cannot be loaded: {type(error).__name__}: {reason}") from error


def find_policy(loaded: Loaded) -> tuple[Policy, str]:
    """The policy of settings from in_force; and in place of what the RULE orders, and why, "" = it
    does not.
    """
    name = loaded.settings.policy.name
    try:
        check_policy_name(loaded)
        if not name.startswith(MODEL_PREFIX):
            return policy_named(name), ""
        return load_actor(model_path(loaded), loaded.settings.policy.trust), ""
    except (ModelError, SettingsError) as error:
        if name != DEFAULT:
            raise
        return RULE, f"{name}: {error}"


def check_policy_name(loaded: Loaded) -> str:
    """The name, when it can be one. Loads no model; that of the DEFAULT may be missing."""
    name = loaded.settings.policy.name
    if name == TUNED:
        return name
    if name.startswith(MODEL_PREFIX):
        folder = model_path(loaded)
        with files.named(folder):
            is_there = folder.is_dir()
        if not is_there and name != DEFAULT:
            raise loaded.error("policy.name", f"no model folder {folder}; {RULE_HINT}")
        return name
    if name not in BASELINES and name not in plugin_names():
        raise loaded.error("policy.name", f"no policy {name!r}; {hint(name, TUNED)}")
    return name


def model_path(loaded: Loaded) -> Path:
    """Where the bundle of the policy's model lies: in models_dir, or where its name has a /, there.
    Raises SettingsError: it can be neither; in a file a path begins with / and has no .. in it.
    """
    policy = loaded.settings.policy
    name = policy.name.removeprefix(MODEL_PREFIX)
    if "/" in name:
        by_file = loaded.origin("policy.name").startswith(f"{loaded.path}:")
        if by_file and (not name.startswith("/") or ".." in Path(name).parts):
            why = f"{name!r} is a path: in a file it must begin with / and be without .."
            raise loaded.error("policy.name", why)
        return Path(name).absolute()
    if not is_file_name(name):
        raise loaded.error("policy.name", f"{name!r} is not the name of a folder in models_dir")
    return find_bundle(policy.models_dir, name)


def configured_predictor(settings: Settings) -> Predictor:
    """The predictor of the settings. Raises ModelError: it cannot be used."""
    name = settings.predictor.model
    if not is_file_name(name):
        raise ModelError(f"predictor.model: {name!r} is not the name of a folder in models_dir")
    return load_predictor(find_predictor(settings.policy.models_dir, name))


def memory_of(settings: Settings, salt: bytes) -> Callable[[], RunTimeMemory]:
    """Makes empty memories with the predictor of the settings. Raises ModelError."""
    logits = configured_predictor(settings).logits
    return lambda: RunTimeMemory(logits, salt=salt)


def run_times_of(
    loaded: Loaded, salt: bytes | None, log: Log, backend: Backend | None = None
) -> RunTimeLearner:
    """What learns from ended jobs. salt: None = nothing learned is kept. backend: whose past is
    learned too; None = none. Raises ModelError: the predictor cannot be used.
    """
    settings = loaded.settings
    if not settings.predictor.enabled:
        return RunTimeLearner(None, None, log)
    secret = salt or secrets.token_bytes(SALT_BYTES)
    return RunTimeLearner(
        memory_of(settings, secret),
        settings.daemon.state_dir if salt else None,
        log,
        history=backend.ended_jobs if isinstance(backend, SlurmBackend) else None,
        salt=hashlib.sha256(secret).hexdigest()[:16],
    )
