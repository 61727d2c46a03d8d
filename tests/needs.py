"""What a machine may lack: tests that need it are skipped by hand and fail in CI."""

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest


def skip_or_fail(why: str) -> NoReturn:
    """Skip this test with its reason; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI nothing skips: {why}")
    pytest.skip(why, allow_module_level=True)


def program(name: str) -> None:
    """This test runs the named program."""
    if shutil.which(name) is None:
        skip_or_fail(f"{name} is not installed")


def module(name: str) -> None:
    """This test, or all of this file, uses the named module of the training extras."""
    if importlib.util.find_spec(name) is None:
        skip_or_fail(f"{name} is not installed")
