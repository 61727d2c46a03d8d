"""The last part of `rltuned backtest`: the setting that the record speaks for."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from rltuned.cli.flags import say
from rltuned.cli.tables import Column, console, show_table
from rltuned.errors import TraceError
from rltuned.lab.backtest.past import Past
from rltuned.policies.actor import Actor
from rltuned.policies.generations import TUNED
from rltuned.policies.named import policy_named
from rltuned.policies.plugins import is_plugin
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import bundle_at, shipped_predictor
from rltuned.settings import Loaded
from rltuned.stats import percent

if TYPE_CHECKING:  # numba, which --help does without
    from rltuned.lab.backtest.study import Study

COLUMNS: Final = (
    Column("after the switch", least=14),
    Column("own", right=True, goes=2),
    Column("share", right=True, goes=2),
    Column("mean wait, s", right=True),
    Column("change", right=True),
    Column("p99 wait, s", right=True, goes=1),
    Column("longest, s", right=True),
    Column("slowdown", right=True, goes=3),
)
PLAYS: Final = 30
"""About so many, for the bar."""


def chosen_setting(
    loaded: Loaded,
    study: "Study",
    predictor: Predictor,
    show: Callable[[str, float], None],
    *,
    seed: int | None,
) -> dict[str, Any]:
    """The choice, see tune/advice; a sentence alone where there can be none.

    predictor: what the orders of the later part know. seed: of the fit for the earlier part; None =
    the shipped predictor knows all there is. Raises ModelError: the policy cannot be used.
    """
    from rltuned.lab.backtest.play import as_daemon  # noqa: PLC0415 - numba
    from rltuned.lab.train.predictor import fit  # noqa: PLC0415 - torch
    from rltuned.lab.tune.advice import Advice, advice_json, advise  # noqa: PLC0415
    from rltuned.lab.tune.search import policies_of  # noqa: PLC0415

    settings, shipped = loaded.settings, load_predictor(shipped_predictor())
    learned, plays = "the shipped predictor of run times", 0

    def learn(began: Past) -> Predictor:
        nonlocal learned
        if seed is None:
            return shipped
        jobs, start_s = began.known()
        try:
            fitted = fit(jobs, start_s=start_s, begin=shipped, seed=seed)
        except TraceError as error:
            learned = f"{learned}: {error}"
            return shipped
        learned = f"a predictor of run times fitted to {fitted.examples} jobs"
        return fitted.predictor

    def on_play(_name: str) -> None:
        nonlocal plays
        plays += 1
        show("choosing", min(1.0, plays / PLAYS))

    if why := _why_not(settings.policy.name, study):
        return {**advice_json(Advice(f"No setting is chosen: {why}.")), "chosen_with": None}
    asked = settings.policy
    policy, network = policy_named(asked.name, asked.models_dir, asked.trust), None
    if isinstance(policy, Actor):
        network = bundle_at(asked.name, asked.models_dir)
    advice = advise(
        study.past,
        [(policy, network), *policies_of(network)],
        settings.knobs().order,
        learn,
        predictor,
        price=settings.tune.longest,
        daemon=as_daemon(settings),
        on_play=on_play,
    )
    return {**advice_json(advice), "chosen_with": learned}


def _why_not(policy: str, study: "Study") -> str:
    """Empty = a setting can be chosen."""
    from rltuned.lab.backtest.study import VERDICTS  # noqa: PLC0415 - numba

    if policy == TUNED:
        return 'policy.name is "tuned", so `rltuned tune` chooses and tests it'
    if is_plugin(policy):
        return f"{policy} plays in rltuned simulate only"
    poor = study.calibration.whole.verdict == "poor"
    return VERDICTS["poor"] if poor else ""


def show_choice(found: dict[str, Any]) -> None:
    """The orders side by side, the sentence, and the lines to write."""
    if found["orders"]:
        show_table(console(), COLUMNS, [_row(n, o) for n, o in found["orders"].items()])
    say(found["sentence"])
    for text in found["why"]:
        if text not in found["sentence"]:
            say(text)
    for line in found["lines"]:
        say(f"  {line}")


def _row(name: str, order: dict[str, Any]) -> tuple[str, ...]:
    against = order["against_fcfs"]
    return (
        name,
        f"{order['own']:g}",
        f"{order['share']:g}",
        f"{order['wait_s']:.0f}",
        "" if against is None else percent(**against["wait"]),
        f"{order['wait_p99_s']:.0f}",
        f"{order['wait_max_s']:.0f}",
        f"{order['bsld']:.2f}",
    )
