"""Real time and real signals, without asserting how long anything takes."""

import os
import resource
import signal
import threading

from rltuned.daemon.clock import SystemClock
from rltuned.daemon.systemd import SignalFlags, listening


def test_a_wait_ends_by_itself() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    assert clock.wait(0.01) is False
    assert clock.monotonic() > before
    assert clock.now() > 1_600_000_000


def test_a_wake_up_ends_the_wait_and_only_a_stop_stops() -> None:
    clock = SystemClock()
    clock.wake(stop=False)
    assert clock.wait(60) is False
    clock.wake(stop=True)
    assert clock.wait(60) is True
    assert clock.wait(60) is True


def test_many_wake_ups_block_nobody() -> None:
    clock = SystemClock()
    for _ in range(100_000):
        clock.wake(stop=False)
    assert clock.wait(60) is False
    assert clock.wait(0) is False


def test_signals_become_orders() -> None:
    clock, orders = SystemClock(), SignalFlags()
    before = signal.getsignal(signal.SIGHUP)
    with listening(orders, lambda stop: clock.wake(stop=stop)):
        killer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGHUP))
        killer.start()
        assert clock.wait(60) is False
        killer.join()
        assert (orders.reload, orders.stop) == (True, False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert clock.wait(60) is True
        assert orders.stop
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_wait_works_in_a_process_with_more_than_a_thousand_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        clock = SystemClock()
        assert not clock.wait(0.01)
        clock.wake(stop=True)
        assert clock.wait(60.0)
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
