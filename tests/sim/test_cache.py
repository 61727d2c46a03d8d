"""Machine code on disk: what an older release left there is never read."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
from rltuned.lab.kernel.compiler import entry

@entry
def double(value):
    return 2 * value
"""


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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


def test_the_sources_of_the_kernel_and_of_what_it_imports_are_part_of_the_name() -> None:
    """And none of the others, whose change would compile all again."""
    from rltuned.lab.kernel import compiler  # noqa: PLC0415 - numba

    use = (
        "import sys, rltuned.lab.kernel.loop, rltuned.lab.kernel.episode\n"
        "for name, one in sys.modules.items():\n"
        "    if name.startswith('rltuned.'): print(one.__file__)"
    )
    files = subprocess.check_output([sys.executable, "-c", use], cwd=ROOT, text=True).splitlines()
    names = {Path(file).relative_to(ROOT / "rltuned").as_posix() for file in files}
    assert {"core/limits.py", "core/numbers.py", "domain/fields.py"} < names
    texts = {Path(file): Path(file).read_bytes() for file in files}
    missing = [path for path, text in texts.items() if text not in compiler._SOURCES]
    assert missing == [ROOT / "rltuned" / "lab" / "__init__.py"]
    assert (ROOT / "rltuned/core/decide.py").read_bytes() not in compiler._SOURCES


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
