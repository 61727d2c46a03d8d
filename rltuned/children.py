"""The end of a child process that was started in a session of its own."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Final

_REAP_S: Final = 2.0


def end(child: subprocess.Popen[bytes], deadline: float, *, broken: bool) -> int | None:
    """Its exit code; None = it broke off or did not end in time, and was ended with all it started.

    deadline: of time.monotonic(). The group is signalled before the child is reaped: until then no
    one else can have its number.
    """
    code = None
    if not broken:
        with suppress(subprocess.TimeoutExpired):
            code = child.wait(timeout=max(0.0, deadline - time.monotonic()))
    if code is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    if code is None:
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: leave it there
            child.wait(timeout=_REAP_S)
    return code
