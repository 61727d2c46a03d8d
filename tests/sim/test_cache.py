"""Machine code on disk: what an older release left there is never read."""

import importlib.util
from pathlib import Path
from types import ModuleType

MODULE = """
from rltuned.sim.engine.arrays import entry

def over(digest):
    def double(value):
        if digest == "":
            return -1
        return 2 * value
    return entry(double)
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
    module = loaded(path)
    assert module.over("a" * 64)(4) == 8
    (index,) = tmp_path.glob("__pycache__/*.nbi")
    index.write_bytes(b"of an older release")
    assert module.over("b" * 64)(4) == 8
    assert len([*tmp_path.glob("__pycache__/*.nbi")]) == 2
