"""What the package's scripts do where a program of the distribution is missing."""

import re
import subprocess
from pathlib import Path

import pytest

POSTINST = Path(__file__).resolve().parents[3] / "deploy" / "debian" / "postinst"


@pytest.mark.parametrize(
    ("older", "dpkg", "taken_for_old"),
    [("upgrade", None, ""), ("0.1.0-1", 0, "old"), ("0.2.0-1", 1, "")],
)
def test_only_dpkg_knows_the_release_that_noted_no_units(
    tmp_path: Path, older: str, dpkg: int | None, taken_for_old: str
) -> None:
    """Without dpkg, as on systems with RPM, no unit is started that did not run."""
    found = re.search(r'start_again "(\$\(.+\))"', POSTINST.read_text())
    assert found is not None
    if dpkg is not None:
        (tmp_path / "dpkg").write_text(f"#!/bin/sh\nexit {dpkg}\n")
        (tmp_path / "dpkg").chmod(0o755)
    script = f'set -- configure "$1"; PATH={tmp_path}; printf %s "{found[1]}"'
    done = subprocess.run(
        ["/bin/sh", "-ec", script, "sh", older], capture_output=True, text=True, check=True
    )
    assert done.stdout == taken_for_old
