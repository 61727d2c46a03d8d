"""Machine code on disk: what an older release left there is never read."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

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


@pytest.mark.parametrize("file", ["lab/kernel/loop.py", "core/limits.py", "domain/plan.py"])
def test_a_change_of_what_is_compiled_gives_it_another_name(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "rltuned"
    shutil.copytree(ROOT / "rltuned", folder, ignore=lambda _, names: {"__pycache__"} & {*names})
    program = "from rltuned.lab.kernel import compiler; print(compiler.__file__, compiler.digest())"

    def said() -> list[str]:
        path = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", program]
        return subprocess.check_output(command, env=path, cwd=tmp_path, text=True).split()

    place, before = said()
    assert Path(place).is_relative_to(folder)
    with (folder / file).open("a") as changed:
        changed.write("\n")
    assert said()[1] != before


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
