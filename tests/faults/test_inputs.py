"""The model, the settings or the clock change under a running daemon."""

import signal
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.cli.flags import settings_of
from rltuned.cli.world import real_slurm
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.journal import Journal
from rltuned.daemon.loop import Loop
from rltuned.daemon.rig import build_rig
from rltuned.daemon.signals import Orders
from tests.faults.case import Case
from tests.unit.daemon.test_loop import Heard

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

MODELS = Path(__file__).resolve().parents[2] / "models"


def test_the_model_is_replaced_by_garbage(case: Case) -> None:
    case.copy_models(MODELS)
    case.settle("model:warmstart-saf")
    weights = case.models / "warmstart-saf" / "actor.safetensors"
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the model's order")
        weights.write_bytes(b"\x00" * 4096)
        cycles = daemon.metric("rltuned_cycles_total")
        daemon.wait_for(lambda: daemon.metric("rltuned_cycles_total") >= cycles + 2, "two more")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("reload_failed")
        assert daemon.metric("rltuned_config_last_reload_successful") == 0
        assert case.turned
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    again = case.rltuned("run", "--live", "--once")
    assert again.returncode == 2
    assert str(weights) in again.stderr
    case.assert_given_back()


def test_the_settings_are_spoilt_and_the_daemon_is_killed(case: Case) -> None:
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        good = case.config.read_text()
        case.config.write_text("[daemon\ninterval_s = often\n")
        daemon.signal(signal.SIGKILL)
        daemon.ends()
    # as the service manager does after any end
    env = {"STATE_DIRECTORY": str(case.state)}
    done = case.rltuned("restore", "--all", environ=env)
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


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_the_clock_jumps(case: Case, jump_s: float) -> None:
    clock = JumpingClock()
    loaded = settings_of(case.config, ("ladder.stage", "full", "--live"))
    rig = build_rig(loaded, real_slurm(loaded, clock))
    heard = Heard()
    with closing(Journal(case.state)) as journal:
        loop = Loop(rig, clock, journal, heard, orders=Orders(), reload=lambda: rig)
        assert loop.cycle().ok
        assert case.turned
        clock.jump_s = jump_s
        started = clock.monotonic()
        assert loop.run(cycles=3) == 0
        assert clock.monotonic() - started > 1.5, "a jump must not make it hurry"
        assert all(report.ok for report in heard.reports)
        case.assert_unharmed()
        assert case.turned
        clock.jump_s = 0.0
        assert loop.cycle().ok
        assert case.turned
    case.assert_given_back()
