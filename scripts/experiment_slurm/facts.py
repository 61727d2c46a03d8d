"""Where and on what a run was made."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def facts() -> dict[str, str]:
    """Commit, version, processors: what a reader needs to place a figure."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    ).stdout.strip()  # fmt: skip
    return {
        "commit": commit or "unknown",
        "rltuned": version("rltuned"),
        "cores": str(len(os.sched_getaffinity(0))),
        "machine": platform.machine(),
    }
