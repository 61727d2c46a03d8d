"""What a machine may lack: tests that need it are skipped by hand and fail in CI."""

import os
import shutil
from typing import NoReturn

import pytest


def skip_or_fail(why: str) -> NoReturn:
    """Skip this test with its reason; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI nothing skips: {why}")
    pytest.skip(why)


def program(name: str) -> None:
    """This test runs the named program."""
    if shutil.which(name) is None:
        skip_or_fail(f"{name} is not installed")
