"""The RPM: its files are those of the Debian package, and its scripts are that package's own.

No system with RPM was at hand: docs/compatibility.md has what ran.
"""

import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.programs import ran

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def rpm() -> Path:
    needs.program("rpmbuild")
    subprocess.run(["sh", "scripts/dist.sh", "rpm"], cwd=ROOT, check=True, timeout=900)
    return max(ROOT.glob("dist/rltuned-*.rpm"), key=lambda file: file.stat().st_mtime)


def asked(rpm: Path, *what: str) -> str:
    command = ["rpm", "-qp", *what, str(rpm)]
    return ran(*command, timeout=60).stdout


def test_files(rpm: Path, package: Path) -> None:
    listed = ran("dpkg-deb", "-c", str(package), timeout=60).stdout
    debian = {line.split()[-1].removeprefix(".") for line in listed.splitlines()}
    debian = {path for path in debian if not path.endswith("/")} - {
        "/usr/share/doc/rltuned/changelog.Debian.gz"
    }
    moved = {
        path.replace("/lib/systemd/system/", "/usr/lib/systemd/system/")
        if path.startswith("/lib/")
        else path.replace("/zsh/vendor-completions/", "/zsh/site-functions/")
        for path in debian
    }
    own = {f"/usr/lib/rltuned/package/{name}" for name in ("postinst", "prerm")}
    assert set(asked(rpm, "-l").splitlines()) == moved | own | {"/etc/rltuned"}


def test_scripts_give_jobs_back_before_the_program_goes(rpm: Path) -> None:
    scripts = asked(rpm, "--scripts")
    assert '[ "$1" -ne 0 ] || /usr/lib/rltuned/package/prerm remove' in scripts
    assert "/usr/lib/rltuned/package/prerm upgrade" in scripts
    assert '/usr/lib/rltuned/package/postinst configure "$older"' in scripts
    assert "PYTHON=python3.1" in scripts
    assert "python3.1" in asked(rpm, "--requires")


def test_no_extra_is_in_a_package(rpm: Path) -> None:
    names = asked(rpm, "-l")
    assert not [word for word in ("torch", "llvmlite", "matplotlib") if f"/{word}-" in names]
    assert rpm.stat().st_size < 60 * 1024**2
