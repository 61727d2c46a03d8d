"""What is worth what? Trainings that differ in one thing, on the same windows, over seeds.

    nice python -m scripts.studies run [--out .run/studies] [--minutes 12] [--seeds 1 2 3] [ROW ...]
    python -m scripts.studies table [--out .run/studies]
    python -m scripts.studies train|play ...     # see scripts/studies/learning.py
    python -m scripts.studies bound results.json --trace T --cluster C

`run` goes on where it stopped: one JSON and one curves.csv per training. Seeds are the outer loop,
so a part of the runs is the whole table with fewer seeds. The budget is small and the same for
every row of a study: this compares rows, it makes no good models. `--philly` takes the October
trace with weak limits, as `rltuned traces convert --from philly --limits weak --seed 1` makes it.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.policies.baselines import BASELINES
from rltuned.policies.network import ContextActor, PaperActor
from rltuned.sim.engine.sight import net_of
from rltuned.sim.presets import preset
from rltuned.sim.run import possible
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import read_trace
from rltuned.train.batch import Contest
from rltuned.train.episodes import play_greedy, play_rule
from rltuned.train.ground import Ground, Window, cut, make_ground
from rltuned.train.imitation import Fitting, fit
from rltuned.train.learner import Learner, Settings
from rltuned.train.ppo import train
from rltuned.train.queues import rule_orders
from rltuned.train.run import WARM_EPOCHS, WARM_QUEUES
from rltuned.train.session import Session
from rltuned.train.trial import Trial, total, windows_between
from scripts.studies import bound, learning
from scripts.studies.ablation import EIGHT, NAIVE, NINE, SEVEN, student
from scripts.studies.tables import print_tables

LEARN, CHOOSE = 0.5, 0.6
"""Of a trace: learn from the first part, choose the epoch up to the second, test on what is left.
More is left than in a card's training, so that 20 windows tell rows apart."""
LOADS: Final = (0.7, 0.9, 1.1)
JUDGED: Final = ("fcfs", "sjf", "saf", "f1", "wfp3", "multifactor")
TEST_WINDOWS, TEST_JOBS = 20, 1_024
GENERATED: Final = {
    "helios": ("helios-like", "helios-1080", 40_000, 77),
    "testbed": ("testbed-1024", "testbed", 40_000, 77),
}
GROUNDS: Final = ("philly", *GENERATED)
PAPER = Contest(form="gap", reference="base", rollouts=1, part=LEARN)
GROUP = Contest(form="dense", reference="group", rollouts=10, part=LEARN)


@dataclass(frozen=True, slots=True)
class Row:
    """One way to train. columns: what a per-job network reads; none = its settings' own."""

    contest: Contest = GROUP
    network: str = "paper"
    columns: tuple[str, ...] = ()
    warm: str = ""
    ground: str = "philly"


ONE = replace(GROUP, reference="base", rollouts=1)
ROWS: Final = {
    "standard": Row(),
    "naive": Row(columns=NAIVE),
    "seven": Row(columns=SEVEN),
    "eight": Row(columns=EIGHT),
    "nine": Row(columns=NINE),
    "gap": Row(contest=replace(GROUP, form="gap")),
    "gap-alone": Row(contest=PAPER),
    "dense-alone": Row(contest=ONE),
    "warm": Row(warm="saf"),
    "context": Row(network="context"),
    "base-sjf": Row(contest=replace(ONE, base="sjf")),
    "base-f1": Row(contest=replace(ONE, base="f1")),
    "base-wfp3": Row(contest=replace(ONE, base="wfp3")),
    "on-helios": Row(ground="helios"),
    "on-testbed": Row(ground="testbed"),
}


def settings_of(row: Row, seed: int, epochs: int) -> Settings:
    """The budget: epochs of 50 windows of 256 jobs."""
    kind = "context" if row.network == "context" or row.columns else "paper"
    return Settings(
        contest=row.contest,
        network=kind,  # type: ignore[arg-type]
        epochs=epochs,
        batches=50,
        learning_rate=5e-3,
        seed=seed,
    )


@cache
def ground_of(name: str, philly: Path) -> Ground:
    """Trace and cluster, with weak limits."""
    if name == "philly":
        jobs, cluster = read_trace(philly).jobs, preset("philly-192")
    else:
        kind, where, count, seed = GENERATED[name]
        jobs, cluster = (
            synthesize(kind, jobs=count, seed=seed, limits="weak").jobs,
            preset(where),
        )
    fit, _ = possible(jobs, cluster, skip=True)
    return make_ground(name, cluster, fit)


def test_windows(ground: Ground) -> list[Window]:
    """Disjoint places, each at every load: (places x loads)."""
    first, last = int(len(ground) * CHOOSE), len(ground) - TEST_JOBS
    count = min(TEST_WINDOWS, (len(ground) - first) // TEST_JOBS)
    starts = np.linspace(first, last, count).astype(int)
    return [cut(ground, int(at), TEST_JOBS, load=load) for at in starts for load in LOADS]


def learner_of(row: Row, settings: Settings) -> Learner:
    """As the row says, begun from chance or from a rule's order."""
    learner = student(settings, row.columns) if row.columns else Learner(settings)
    if row.warm:
        fitting = Fitting(epochs=WARM_EPOCHS, seed=settings.seed)
        orders = rule_orders(BASELINES[row.warm], WARM_QUEUES, fitting, settings.seed)
        learner.actor.load_state_dict(fit(orders, fitting)[0].state_dict())
    return learner


def study(row: Row, seed: int, epochs: int, folder: Path, philly: Path) -> None:
    """Train one row with one seed and test it on every ground; resumes an interrupted training."""
    settings, ground = settings_of(row, seed, epochs), ground_of(row.ground, philly)
    held = windows_between(ground, (LEARN, CHOOSE), count=6, size=TEST_JOBS, loads=LOADS)
    trial = Trial.of(held, "wait", ("saf",))
    session = Session(folder, settings, resume=True)
    learner = learner_of(row, settings)
    standing = session.restore(learner)
    train(
        learner,
        [ground],
        settings,
        lambda actor: trial.ratio(actor, "saf"),
        first_epoch=standing.epoch if standing else 0,
        best=standing.best if standing else float("inf"),
        on_epoch=lambda report: session.keep(learner, report),
    )
    session.load_best(learner)
    # the transfer rows alone are asked everywhere
    everywhere = GROUNDS if row.contest == GROUP and row == Row(ground=row.ground) else ("philly",)
    found = {
        "settings": settings.described() | {"row": str(asdict(row))},
        "seconds": session.seconds(),
        "tested": {
            name: tested(learner.actor, ground if name == row.ground else ground_of(name, philly))
            for name in everywhere
        },
    }
    (folder / "found.json").write_text(json.dumps(found, indent=1) + "\n")


def tested(actor: PaperActor | ContextActor, ground: Ground) -> dict[str, list[float]]:
    """Mean wait and excess slowdown on every test window."""
    net, windows = net_of(actor), test_windows(ground)
    starts = [play_greedy(w, net) for w in windows]
    return {
        metric: [total(metric, w, s) for w, s in zip(windows, starts, strict=True)]
        for metric in ("wait", "bsld")
    }


def rules(folder: Path, philly: Path) -> None:
    """What the rules make of the test windows, once."""
    path = folder / "rules.json"
    if path.exists():
        return
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in GROUNDS:
        windows = test_windows(ground_of(name, philly))
        found[name] = {}
        for rule in JUDGED:
            starts = [play_rule(w, rule) for w in windows]
            found[name][rule] = {
                metric: [total(metric, w, s) for w, s in zip(windows, starts, strict=True)]
                for metric in ("wait", "bsld")
            }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found) + "\n")


def run(asked: argparse.Namespace) -> None:
    """Train what is missing until the minutes are over."""
    until = time.monotonic() + 60 * asked.minutes
    rules(asked.out, asked.philly)
    for seed in asked.seeds:
        for name in asked.rows or ROWS:
            folder = asked.out / f"{name}-{seed}"
            if (folder / "found.json").exists():
                continue
            if time.monotonic() > until:
                return
            began = time.monotonic()
            study(ROWS[name], seed, asked.epochs, folder, asked.philly)
            print(f"{name} seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    print("all there")


def main(given: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    running, tables = commands.add_parser("run"), commands.add_parser("table")
    running.set_defaults(run=run)
    tables.set_defaults(run=lambda asked: print_tables(asked.out, asked.seeds))
    for one in (running, tables):
        one.add_argument("--out", type=Path, default=Path(".run/studies"))
        one.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    running.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    running.add_argument("--philly", type=Path, default=Path(".run/traces/philly-weak.csv.gz"))
    running.add_argument("--minutes", type=float, default=12.0)
    running.add_argument("--epochs", type=int, default=15)
    learning.add_commands(commands)
    bound.add_command(commands)
    asked = parser.parse_args(given)
    if unknown := set(getattr(asked, "rows", ())) - set(ROWS):
        parser.error(f"no row {min(unknown)!r}; there are: {', '.join(ROWS)}")
    asked.run(asked)


if __name__ == "__main__":
    main()
