"""Machine code on disk: what an older release left there is never read."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

MODULE = """
from rltuned.kernel.compiler import entry

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


@pytest.mark.parametrize("floor", ["kernel", "core", "domain"])
def test_the_sources_of_the_kernel_and_its_constants_are_part_of_the_name(floor: str) -> None:
    from rltuned.kernel import compiler  # noqa: PLC0415 - numba

    folder = Path(compiler.__file__).parents[1] / floor
    assert all(path.read_bytes() in compiler._SOURCES for path in folder.glob("*.py"))
