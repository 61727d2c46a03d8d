"""The model, the settings or the clock change under a running daemon."""

import hashlib
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rltuned.cli.asking import real_slurm
from rltuned.cli.flags import settings_of
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.loop import Loop
from rltuned.daemon.state import HealthState
from rltuned.daemon.systemd import SignalFlags
from rltuned.daemon.wiring import build_rig
from rltuned.journal.journal import Journal
from tests.builders import sure
from tests.faults.case import FULL, MINUTES, Case
from tests.loops import Received

pytestmark = pytest.mark.slurm

MODELS = Path(__file__).resolve().parents[2] / "models"


def test_a_sealed_model_that_is_malformed_ends_no_running_daemon(case: Case) -> None:
    """In review BadZipFile came out of the loader, and SIGHUP ended the daemon."""
    parity = b"PK no archive"
    case.copy_models(MODELS)
    case.settle("model:warmstart-saf")
    bundle = case.models / "warmstart-saf"
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the model's order")
        card = json.loads((bundle / "card.json").read_text())
        card["files_sha256"]["parity.npz"] = hashlib.sha256(parity).hexdigest()
        (bundle / "card.json").write_text(json.dumps(card))
        (bundle / "parity.npz").write_bytes(parity)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("reload_failed")
        assert daemon.metric("rltuned_config_last_reload_successful") == 0
        cycles = daemon.metric("rltuned_cycles_total")
        daemon.wait_for(lambda: daemon.metric("rltuned_cycles_total") >= cycles + 2, "two more")
        assert case.turned, "it keeps the model that it has"
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    again = case.rltuned("run", "--live", "--once")
    assert again.returncode == 2
    assert str(bundle / "parity.npz") in again.stderr
    assert "Traceback" not in again.stderr
    case.assert_given_back()


PLACES: dict[str, Callable[[Case], Path]] = {
    "settings": lambda case: case.folder,
    "slurm.bin_dir": lambda case: case.shims.folder,
    "scontrol": lambda case: case.shims.folder / "scontrol",
    "slurm.conf": lambda case: case.folder / "slurm.conf",
    "daemon.state_dir": lambda case: case.state,
    "daemon.pause_file": lambda case: case.folder / "pause",
    "policy.models_dir": lambda case: case.models,
}


def test_what_any_user_can_change_is_not_run_and_not_believed(case: Case) -> None:
    case.copy_models(MODELS)
    case.settle("model:warmstart-saf")
    text = case.config.read_text()
    text = text.replace(str(case.lab.conf), str(case.folder / "slurm.conf"))
    text = text.replace(f"{case.folder}/PAUSE", f"{case.folder}/pause/PAUSE")
    case.config.write_text(text)
    (case.folder / "slurm.conf").write_text(f"include {case.lab.conf}\n")
    (case.folder / "pause").mkdir(mode=0o755)
    good = case.rltuned("run", "--live", "--once")
    assert good.returncode == 0, good.stderr
    case.assert_given_back()
    for key, place_of in PLACES.items():
        place = place_of(case)
        mode = place.stat().st_mode
        place.chmod(0o777)
        bad = case.rltuned("run", "--live", "--once")
        assert bad.returncode == 2, bad.stderr
        assert f"{place}: others may write to it" in bad.stderr
        assert (key in bad.stderr) or key in {"settings", "scontrol", "policy.models_dir"}
        case.assert_untouched()
        place.chmod(mode)


def test_the_settings_are_spoilt_and_the_daemon_is_killed(case: Case) -> None:
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        good = case.config.read_text()
        case.config.write_text("[daemon\ninterval_s = often\n")
        daemon.signal(signal.SIGKILL)
        daemon.ends()
    # as the service manager does after any end
    done = case.apart("restore", "--all", STATE_DIRECTORY=str(case.state))
    assert done.returncode == 0, done.stdout + done.stderr
    case.assert_untouched()
    case.config.write_text(good)
    case.assert_given_back()


class JumpingClock(SystemClock):
    """The wall clock as it is after somebody has set it."""

    jump_s = 0.0

    def now(self) -> float:
        return super().now() + self.jump_s

    def readings(self) -> tuple[float, float, float]:
        monotonic, boot, wall = super().readings()
        return monotonic, boot, wall + self.jump_s


@pytest.mark.parametrize("jump_s", [-3600.0, 30 * 86_400.0])
def test_the_clock_jumps(case: Case, jump_s: float) -> None:
    """In review a host that was a month ahead gave jobs numbers that were a month ahead."""
    clock = JumpingClock()
    loaded = settings_of(case.config, ("ladder.stage", "full", "--live"))
    rig = build_rig(loaded, real_slurm(loaded, clock))
    received = Received()
    with closing(Journal(case.state)) as journal:
        loop = Loop(rig, clock, journal, received, orders=SignalFlags(), reload=lambda: rig)
        assert loop.cycle().ok
        assert case.turned
        clock.jump_s = jump_s
        started = clock.monotonic()
        assert loop.run(cycles=3) == 1, "in doubt"
        assert clock.monotonic() - started > 1.5, "a jump must not make it hurry"
        assert all(report.ok for report in received.reports)
        case.assert_unharmed()
        assert case.turned
        numbers = case.sprio()
        newcomer = case.lab.sbatch(*FULL, "--time=10", "--nice=5")
        off = loop.cycle()
        assert off.mode is HealthState.OBSERVE
        assert "slurmctld's clock is" in off.why(HealthState.CLOCK_OFF)
        assert off.outcomes == ()
        assert case.sprio() | numbers == case.sprio()
        case.lab.run("scancel", str(newcomer))
        clock.jump_s = 0.0
        assert loop.cycle().mode is HealthState.LIVE
        assert case.turned


@pytest.mark.parametrize("jump_s", [90.0, -90.0])
def test_below_two_minutes_slurmctlds_clock_counts(case: Case, jump_s: float) -> None:
    clock = JumpingClock()
    clock.jump_s = jump_s
    loaded = settings_of(case.config, ("ladder.stage", "full", "--live"))
    rig = build_rig(loaded, real_slurm(loaded, clock))
    received = Received()
    with closing(Journal(case.state)) as journal:
        loop = Loop(rig, clock, journal, received, orders=SignalFlags(), reload=lambda: rig)
        assert loop.run(cycles=3) == 0  # of a job of this second it is not certain that it began
    report = received.reports[-1]
    assert report.mode is HealthState.LIVE
    assert case.turned
    assert abs(sure(report.snapshot).taken_at - SystemClock().now()) < 10.0
    case.assert_given_back()


def test_a_reload_with_an_emptied_file_keeps_what_is_in_force(case: Case) -> None:
    """In review SIGHUP put the defaults in force: scope, classes and stage."""
    text = case.config.read_text() + '[[sla]]\nqos = "urgent"\n[ladder]\nstage = "full"\n'
    case.config.write_text(text)
    with case.daemon("--config", str(case.config)) as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        for times, (left, gone) in enumerate(
            [("", "[ladder]"), (text.replace("[[sla]]", "[log]").replace("qos", "# "), "[[sla]]")],
            start=1,
        ):
            case.config.write_text(left)
            daemon.signal(signal.SIGHUP)
            daemon.wait_for_log("] reload_failed", times=times)
            assert gone in daemon.log().split("reload_failed")[-1]
        assert daemon.metric('rltuned_mode{mode="reload_failed"}') == 1
        assert daemon.metric('rltuned_mode{mode="live"}') == 1
        case.config.write_text(text)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for(lambda: daemon.metric('rltuned_mode{mode="reload_failed"}') == 0, "loaded")
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    case.assert_given_back()
    case.assert_given_back()


@contextmanager
def weighing(case: Case, age: int) -> Iterator[None]:
    """slurmctld reads another PriorityWeightAge while it runs."""
    conf = case.lab.conf.read_text()
    try:
        case.lab.conf.write_text(conf.replace("WeightAge=1825", f"WeightAge={age}"))
        case.lab.scontrol("reconfigure")
        case.lab.wait_for(case.lab.controller_up, "slurmctld answers")
        yield
    finally:
        case.lab.conf.write_text(conf)
        case.lab.scontrol("reconfigure")
        case.lab.wait_for(case.lab.controller_up, "slurmctld answers")


def site_factors(case: Case) -> dict[int, int]:
    return {job: int(line.split()[-1]) for job, line in case.sprio().items()}


def test_where_waiting_is_worth_no_points_what_was_written_is_taken_back(case: Case) -> None:
    """In review a delayed job stayed behind all newcomers for ever."""
    assert case.rltuned("run", "--live", "--once").returncode == 0
    assert any(site_factors(case).values())
    with weighing(case, 0):
        done = case.rltuned("run", "--live", "--once")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "is taken back" in done.stdout + done.stderr
        assert not any(site_factors(case).values())
    case.assert_given_back()


def test_what_stands_at_another_slope_is_written_again(case: Case) -> None:
    """In review what had stepped back stood at a tenth of its delay for good."""
    text = case.config.read_text()
    case.config.write_text(text.replace("hysteresis = 0.0", "hysteresis = 0.85"))
    for _ in range(2):
        assert case.rltuned("run", "--live", "--once").returncode == 0
    before = site_factors(case)
    assert any(before.values())
    with weighing(case, 18_250):
        assert case.rltuned("run", "--live", "--once").returncode == 0
        for job, points in site_factors(case).items():
            assert points == pytest.approx(10 * before[job], abs=10)
    case.assert_given_back()


@pytest.mark.parametrize("program", ["squeue", "scontrol"])
def test_a_reload_within_a_cycle_that_changes_how_it_writes(case: Case, program: str) -> None:
    """site_factor, priority and back: each job has one number, and its own in the end."""
    by_factor = case.config.read_text()
    by_priority = by_factor.replace("[limits]", '[limits]\nwrite_mode = "priority"')
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "by site factors")
        for text, fixed in ((by_priority, True), (by_factor, False)):
            case.config.write_text(text)
            word = "-v" if program == "scontrol" else ""
            case.shims.once(program, 'kill -HUP $PPID; exec "$REAL" "$@"', word)
            case.lab.scontrol(
                "update", f"JobId={case.waiting[1]}", f"TimeLimit={MINUTES[1] - 5_000 * fixed}"
            )
            daemon.wait_for(lambda: case.shims.used(program), "a reload within a cycle")
            daemon.wait_for(
                lambda fixed=fixed: (
                    case.turned and all(map(is_fixed, case.sprio().values())) == fixed
                ),  # type: ignore[misc]
                "by the other number",
            )
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
        assert "unexpected" not in daemon.log()
    case.assert_given_back()


def is_fixed(line: str) -> bool:
    """Whether sprio shows no factor of a job: its priority was set."""
    return not any(map(int, line.split()[1:]))
