"""Machine code on disk: what an older release left there is never read."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rltuned.lab.kernel.sources import Package
from tests.builders import sure

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
from rltuned.lab.kernel.compiler import entry

@entry
def double(value):
    return 2 * value
"""


def loaded(path: Path) -> ModuleType:
    spec = sure(importlib.util.spec_from_file_location(path.stem, path))
    module = importlib.util.module_from_spec(spec)
    sure(spec.loader).exec_module(module)
    return module


def test_an_index_that_cannot_be_read_any_more_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "cached.py"
    path.write_text(MODULE)
    assert loaded(path).double(4) == 8
    (index,) = tmp_path.glob("__pycache__/*.nbi")
    index.write_bytes(b"of an older release")
    path.write_text(f"{MODULE}# the next one")
    assert loaded(path).double(4) == 8
    assert len([*tmp_path.glob("__pycache__/*.nbi")]) == 2


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package's sources."""
    folder = tmp_path_factory.mktemp("copied") / "rltuned"
    shutil.copytree(ROOT / "rltuned", folder, ignore=lambda _, names: {"__pycache__"} & {*names})
    return folder


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("lab/kernel/loop.py", "State", "Estate"),
        ("core/limits.py", "_PAIRS_LEAST", "_PAIRS_MOST"),  # what a function of the core goes by
        ("core/run_times.py", "HIGH_OF_MEAN: Final = ", "HIGH_OF_MEAN: Final = 2 * "),
        ("core/queue_features.py", "def fill_queue_columns(", "def fill_queue_columns( "),
        ("domain/fields.py", "MAX_PRIORITY = ", "MAX_PRIORITY = 1 + "),
    ],
)
def test_a_change_of_what_is_compiled_changes_the_sources(
    package: Path, file: str, old: str, new: str
) -> None:
    assert differs(package / file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("core/decide.py", "def ", "def  "),  # not imported
        ("lab/kernel/episode.py", "def ", "def  "),  # another one that Python calls
        ("core/run_times.py", "The expected run time of", "How long by"),  # a docstring
        ("domain/jobs.py", "class ", "class  "),  # imported for annotations alone
        ("errors.py", "class ", "class  "),
    ],
)
def test_a_change_of_anything_else_does_not(package: Path, file: str, old: str, new: str) -> None:
    assert not differs(package / file, old, new)


def differs(file: Path, old: str, new: str) -> bool:
    """Whether the sources are others with a word of the package exchanged."""
    folder = next(parent for parent in file.parents if parent.name == "rltuned")
    text = file.read_text()
    assert old in text
    try:
        file.write_text(text.replace(old, new))
        play = "rltuned.lab.kernel.loop", "play"
        return Package(folder).sources_of(*play) != Package().sources_of(*play)
    finally:
        file.write_text(text)


def test_what_a_function_of_another_package_calls_is_not_known() -> None:
    found = Package().sources_of("elsewhere", "anything")
    assert all(f"def {name}(" in found for name in ("play", "episode", "weigh"))


def test_a_name_that_is_nowhere_is_said(package: Path) -> None:
    with pytest.raises(ImportError, match=r"core\.numbers defines no FIRST_HYSTERESIS"):
        differs(package / "core/numbers.py", "FIRST_HYSTERESIS", "HYSTERESIS")


def test_a_user_takes_over_what_the_installation_compiled(tmp_path: Path) -> None:
    """Where a package lies, users may not write; their numba keeps its code in their home."""
    package, home = tmp_path / "package", tmp_path / "home"
    package.mkdir()
    (package / "cached.py").write_text(MODULE)
    use = "import cached; cached.double(4); print(sum(cached.double.stats.cache_hits.values()))"
    # root without the right to write everywhere
    as_user = [] if os.getuid() else ["setpriv", "--bounding-set=-dac_override"]

    def hits(before: list[str]) -> str:
        paths = {"HOME": str(home), "PYTHONPATH": f"{package}:{ROOT}", "PATH": os.environ["PATH"]}
        return subprocess.check_output(
            [*before, sys.executable, "-c", use], env=paths, text=True
        ).strip()

    assert hits([]) == "0"  # the installation compiles
    folder = package / "__pycache__"
    folder.chmod(0o555)
    try:
        assert hits(as_user) == "1"
    finally:
        folder.chmod(0o755)
    assert [*home.rglob("*.nbi")]
