"""What was seen too long ago, by any of three clocks, is not written on."""

from pathlib import Path

import pytest

from rltuned.daemon.clock import SystemClock
from rltuned.domain.plan import PRIORITY, Action, Plan, Result, target_of
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import Fence, SlurmCli
from tests.loops import Clocks
from tests.recorded import DATA, MARKS, Recording, replay

RECORDED = Recording(DATA / "22.05")


def test_nothing_is_sent_before_the_first_look() -> None:
    assert "not looked at yet" in Fence(Clocks(), 120).shut()


def test_a_fresh_view_is_sent_and_an_old_one_is_not() -> None:
    clocks = Clocks()
    fence = Fence(clocks, 120)
    fence.look()
    clocks.run(119)
    assert fence.shut() == ""
    clocks.run(2)
    assert fence.shut() == "not sent: the queue was seen 121 s ago, and max_snapshot_age_s is 120"
    fence.look()
    assert fence.shut() == ""


@pytest.mark.parametrize("how", ["awake_s", "boot_s", "wall_s"])
def test_each_clock_alone_is_enough(how: str) -> None:
    clocks = Clocks()
    fence = Fence(clocks, 120)
    fence.look()
    setattr(clocks, how, getattr(clocks, how) + 300)
    assert "300 s ago" in fence.shut()


def test_a_wall_clock_set_back_hides_nothing() -> None:
    clocks = Clocks()
    fence = Fence(clocks, 120)
    fence.look()
    clocks.run(200)
    clocks.wall_s -= 4_000
    assert "200 s ago" in fence.shut()


def test_the_last_word_is_the_leases() -> None:
    fence = Fence(Clocks(), 120, lambda: "not sent: this daemon does not hold the lease")
    fence.look()
    assert fence.shut() == "not sent: this daemon does not hold the lease"


def test_the_systems_clocks_go_forward() -> None:
    clock = SystemClock()
    first, second = clock.readings(), clock.readings()
    assert len(first) == 3
    assert all(b >= a for a, b in zip(first[:2], second[:2], strict=True))


def test_it_is_asked_before_every_batch_and_what_is_withheld_was_not_sent(tmp_path: Path) -> None:
    replay(tmp_path, RECORDED)
    sent = tmp_path / "sent"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f'#!/bin/sh\n[ "$1" = show ] && exec cat {tmp_path}/answers/config\ncat >>"{sent}"\n'
    )
    clocks = Clocks()

    class Slow(Fence):
        """Each batch takes 50 s."""

        def shut(self) -> str:
            clocks.run(50)
            return super().shut()

    cli = SlurmCli(bin_dir=tmp_path, chunk=1)
    it = SlurmBackend(cli, lambda: RECORDED.taken_at, marks=MARKS, fence=Slow(clocks, 120))
    jobs = [j for j in it.observe().pending if j.priority and not j.held_by][:4]
    plan = Plan(tuple(Action(PRIORITY, target_of(j), j.priority, 5, 0) for j in jobs))
    outcomes = it.apply(plan)
    assert len(sent.read_text().splitlines()) == 2
    assert [o.result for o in outcomes[2:]] == [Result.WITHHELD] * 2
    assert "seen 150 s ago" in outcomes[2].detail
    assert "seen 150 s ago" in outcomes[3].detail, "once shut it stays shut for this plan"


def test_after_a_rate_limit_the_rest_of_the_plan_waits(tmp_path: Path) -> None:
    replay(tmp_path, RECORDED)
    (tmp_path / "scontrol").write_text(
        f'#!/bin/sh\n[ "$1" = -v ] || exec cat {tmp_path}/answers/config\n'
        f'cat >>"{tmp_path}/sent"\n'
        'echo "scontrol: RPC rate limited 1 time(s). Sleeping then trying again." >&2\n'
    )
    it = SlurmBackend(SlurmCli(bin_dir=tmp_path, chunk=1), lambda: RECORDED.taken_at, marks=MARKS)
    jobs = [j for j in it.observe().pending if j.priority and not j.held_by][:3]
    outcomes = it.apply(Plan(tuple(Action(PRIORITY, target_of(j), j.priority, 5, 0) for j in jobs)))
    assert len((tmp_path / "sent").read_text().splitlines()) == 1
    assert [o.result for o in outcomes[1:]] == [Result.WITHHELD] * 2
    assert "limits the rate" in outcomes[1].detail
    assert it.load().rate_limited == 1
    assert it.load().rate_limited == 0
