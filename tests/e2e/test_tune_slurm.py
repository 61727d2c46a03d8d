"""Nights of `rltuned tune` on what a real slurmdbd remembers of jobs that really waited.

Three users submit four kinds of jobs to a real slurmctld, faster than its slurmds can run them, for
some minutes. Then every moment in the database is moved away from the last one by the same factor,
limits too, as if the clock of that cluster had gone so much faster: nothing else of it is made up.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import accounting, needs
from tests.accounting import OPERATOR, OWNER, PLAIN, THIRD, as_user
from tests.conftest import slurm_or_skip
from tests.lab import NodeSpec, SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
NODES = (
    NodeSpec(("p1", "p2"), cpus=64, mem_mib=64_000, gpu_type="p100", gpus=24),
    NodeSpec(("k1",), cpus=64, mem_mib=64_000, gpu_type="k80", gpus=24),
)
PARTITION = ("PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60",)
BY_AGE = "PriorityWeightAge=1000000000"
"""Beside it nothing counts, so the order of the jobs is the same at every speed of the clock."""
FEW, JOBS = 22, 1_500
WAVES = ((0.4, 3.4), (0.8, 2.2), (1.0, 4.5))
"""Seconds from wave to wave, up to these parts of the jobs: a rush between calmer times. The three
nodes need 3.6 s for a wave, without what Slurm itself takes.
"""
DAYS = 40
"""Of the record: the ones from the first submission to the last end."""
EXAM = ["--exam", "6d"]
WHOLE = "select count(*) from rltlab_job_table where time_end > 0 and account > ''"
"""How many jobs slurmdbd knows from submit to end."""
WAITED = """
select count(*), count(distinct id_user), avg(time_start - time_eligible),
  sum(time_start - time_eligible > 5), max(time_end) - min(time_submit)
from rltlab_job_table where time_end > 0 and account > ''
"""


@dataclass(frozen=True)
class Kind:
    """Jobs that a user submits as an array; they run for least_s, and up to spread_s more."""

    user: str
    account: str
    name: str
    gpus: int
    least_s: int
    spread_s: int
    limit_min: int
    tasks: int


KINDS = (
    Kind(PLAIN, "quick", "eval", 1, 3, 4, 1, 14),
    Kind(THIRD, "quick", "sweep", 1, 4, 6, 1, 5),
    Kind(OWNER, "slow", "train", 4, 8, 9, 2, 2),
    Kind(OWNER, "slow", "big", 8, 6, 5, 3, 1),
)


@dataclass(frozen=True)
class Record:
    """What the database says of the real jobs; wait_s: their mean, as long as it really was."""

    jobs: int
    users: int
    wait_s: float
    waited: int
    faster: float


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    slurm_or_skip()
    needs.module("numba")
    if why := accounting.missing():
        needs.skip_or_fail(why)
    more = ("PrivateData=jobs", "AccountingStorageTRES=gres/gpu", BY_AGE)
    with SlurmLab(accounting=True, extra=more, nodes=NODES, partitions=PARTITION) as started:
        for account in ("quick", "slow"):
            started.run("sacctmgr", "-i", "add", "account", account)
        for user, account in {(k.user, k.account) for k in KINDS}:
            started.run("sacctmgr", "-i", "add", "user", user, f"account={account}")
        started.run(
            "sacctmgr", "-i", "add", "user", OPERATOR, "account=root", "adminlevel=operator"
        )
        yield started


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the service's user."""
    with tempfile.TemporaryDirectory(prefix="rltrefit-") as name:
        shutil.chown(name, OPERATOR, OPERATOR)
        yield Path(name)


def asked(lab: SlurmLab, query: str) -> str:
    """What the database of the lab says."""
    database = ("mariadb", "--no-defaults", "-N", "-uroot", f"-S{lab.root / 'db' / 's'}")
    return lab.run(*database, "slurm_acct_db", f"-e{query}")


def submit_wave(lab: SlurmLab, wave: int) -> int:
    """An array of each kind; how many jobs that is."""
    for kind in KINDS:
        run_s = f"$(({kind.least_s} + (SLURM_ARRAY_TASK_ID * 7 + {wave}) % {kind.spread_s}))"
        lab.run(
            *as_user(kind.user), "sbatch", "--output=/dev/null", "--chdir=/", f"-J{kind.name}",
            f"--array=1-{kind.tasks}", "-n1", "--mem=10", f"--gres=gpu:{kind.gpus}",
            f"--time={kind.limit_min}", f"--wrap=sleep {run_s}",
        )  # fmt: skip
    return sum(kind.tasks for kind in KINDS)


def play(lab: SlurmLab, jobs: int) -> None:
    """Let jobs come, wait, run and be remembered."""
    wanted, wave, due = int(asked(lab, WHOLE)), 0, time.monotonic()
    while wanted < jobs:
        wanted += submit_wave(lab, wave)
        wave += 1
        due += next((wait_s for part, wait_s in WAVES if wanted < part * jobs), 0.0)
        time.sleep(max(0.0, due - time.monotonic()))
    lab.wait_for(lambda: int(asked(lab, WHOLE)) >= wanted, 300, "slurmdbd has every job")


def sped_up(lab: SlurmLab) -> Record:
    """Stretch what there is to DAYS; as it really was."""
    jobs, users, wait_s, waited, span_s = map(float, asked(lab, WAITED).split())
    faster = round(DAYS * 86_400 / span_s)
    moments = ("time_submit", "time_eligible", "time_start", "time_end")
    moved = ", ".join(f"{m} = @last - (@last - {m}) * {faster}" for m in moments)
    last = "set @last := (select max(time_end) from rltlab_job_table);"
    update = f"update rltlab_job_table set {moved}, timelimit = timelimit * {faster}"  # noqa: S608
    asked(lab, f"{last} {update}")
    return Record(int(jobs), int(users), wait_s, int(waited), faster)


@pytest.fixture(scope="module")
def record(lab: SlurmLab) -> Record:
    """Of the lab, from here on."""
    play(lab, JOBS)
    return sped_up(lab)


def keep_machine_code(cache: Path) -> None:
    """Put what this checkout has compiled where the service's user keeps its own.

    To compile it again takes the processor for more than a minute; tests/booted lets the unit.
    """
    from numba.core.caching import UserProvidedCacheLocator  # noqa: PLC0415

    from rltuned.kernel import loop  # noqa: PLC0415

    own = Path(loop.play.stats.cache_path)  # type: ignore[attr-defined]
    place = cache / UserProvidedCacheLocator.get_suitable_cache_subpath(loop.__file__)  # type: ignore[no-untyped-call]
    place.mkdir(parents=True)
    for file in own.glob("*.nb?"):
        shutil.copy2(file, place)
    subprocess.run(["chown", "-R", OPERATOR, cache], check=True, timeout=60)


def as_service(lab: SlurmLab, place: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """As the unit does: as its user, with what the unit sets."""
    kept = {**lab.environ(), "PATH": f"{lab.search}:{os.environ['PATH']}"}
    surroundings = {
        "STATE_DIRECTORY": str(place),
        "NUMBA_CACHE_DIR": str(place / "numba"),
        "PYTHONPATH": str(ROOT),
        "HOME": str(place),
    }
    return subprocess.run(
        [*as_user(OPERATOR), *map(str, words)],
        env={**kept, **surroundings},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def settings(lab: SlurmLab, place: Path) -> Path:
    """Beside its state."""
    config = place / "rltuned.toml"
    config.write_text(
        f"""
[daemon]
state_dir = "{place}/state"
pause_file = "{place}/PAUSE"
[policy]
name = "tuned"
[slurm]
conf = "{lab.conf}"
"""
    )
    return config


def night(lab: SlurmLab, place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """As the unit starts it; no time is left for PPO."""
    words = (sys.executable, "-m", "rltuned", "tune", "-c", settings(lab, place))
    return as_service(lab, place, *words, "--minutes", "3", "--json", *more)


def test_too_few_jobs_end_the_night_with_3(lab: SlurmLab, place: Path) -> None:
    play(lab, FEW)
    done = night(lab, place)
    assert done.returncode == 3, done.stderr
    assert "nothing tuned: " in done.stderr
    assert json.loads(done.stdout)["verdict"] == "nothing"


def test_a_night_on_jobs_of_several_users_that_really_waited(
    lab: SlurmLab, place: Path, record: Record
) -> None:
    assert record.users == len({kind.user for kind in KINDS})
    assert record.waited > record.jobs / 4
    keep_machine_code(place / "numba")
    done = night(lab, place, *EXAM)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] in {"kept", "proposed"}
    assert found["record"]["sources"]["sacct"] == record.jobs
    assert found["record"]["users"] == record.users
    assert record.jobs * 0.9 < found["record"]["jobs"] <= record.jobs
    calibration = found["calibration"]["whole"]
    assert calibration["verdict"] in {"close", "rough"}
    assert calibration["mean"]["base"] == pytest.approx(record.wait_s * record.faster, rel=0.1)
    names = {one["name"]: one for one in found["candidates"]}
    assert {"delay", "delay with the site's predictor"} <= set(names)
    assert found["slurm"]["wait_s"] > 0
    state = json.loads((place / "state" / "models" / "tune.json").read_text())
    assert (state["verdict"], state["failed"]) == (found["verdict"], 0)
    assert (place / "state" / "models" / "last-night" / "index.html").exists()
    made = (place / "state" / "models" / "candidate").exists()
    assert made == (found["verdict"] == "proposed")


SHORT_NIGHT = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from rltuned.backtest import fit_order
from rltuned.cli import main
from rltuned.train import run
from rltuned.tune import candidates
candidates.STRETCHES, candidates.LONGEST_DELAYS_S = (1.0,), (86_400.0,)
fit_order.EPOCHS, fit_order.BATCHES, fit_order.PARTS = 2, 10, 4
run.LEARN_UNTIL, run.TEST_FROM = 0.5, 1.0
sys.argv += {exam!r}
main()
"""
"""The program that the job runs: few orders, and a short PPO in windows that fill the cluster,
though the record is short."""


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_night_as_a_slurm_job(lab: SlurmLab, tmp_path: Path, record: Record, tasks: int) -> None:
    program, out, models = tmp_path / "tune", tmp_path / "out", tmp_path / "state" / "models"
    program.write_text(SHORT_NIGHT.format(python=sys.executable, root=str(ROOT), exam=EXAM))
    program.chmod(0o755)
    config = settings(lab, tmp_path)
    # a job of this minute would be the end of the record, days after those that were sped up
    asked(lab, "delete from rltlab_job_table where job_name = 'rltuned-tune'")
    job = lab.run(
        "sbatch", "--parsable", f"--nodes={tasks}", f"--ntasks={tasks}", f"--output={out}",
        f"--export=ALL,RLTUNED={program},MINUTES=10", str(ROOT / "deploy" / "tune.sbatch"),
        str(config),
    ).strip()  # fmt: skip
    lab.wait_for(lambda: lab.state(job) not in {"PD", "R", "CG"}, 400, "the job to end")
    assert lab.state(job) == "CD", out.read_text()
    found = json.loads((models / "last-night" / "results.json").read_text())
    assert found["record"]["sources"]["sacct"] >= record.jobs
    trained = [text for text in found["plain"] if "trained on by PPO for 2 epochs" in text]
    assert len(trained) == 1, out.read_text()
    assert ("on 2 ranks" in trained[0]) == (tasks == 2)
    assert trained[0] in " ".join(out.read_text().split())
    candidate = models / "candidate"
    assert found["generation"] == (candidate.resolve().name if candidate.exists() else None)
    assert (models / "last-night" / "index.html").exists()
    state = json.loads((models / "tune.json").read_text())
    assert (state["verdict"], state["failed"]) == (found["verdict"], 0)
