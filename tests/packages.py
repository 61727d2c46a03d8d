"""An installed package that offers policies, as importlib finds it."""

import sys
from pathlib import Path

import pytest

from rltuned.policies import plugins


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, *names: str, package: str = "ours"
) -> Path:
    """Put a package on the path whose module's functions are policies of these names."""
    folder.mkdir(exist_ok=True)
    module = folder / f"{package}_policies.py"
    module.write_text(f"import numpy as np\n\n\n{code}\n")
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {module.stem}:{name}" for name in names)
    (info / "entry_points.txt").write_text(f"[rltuned.policies]\n{lines}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module.stem, raising=False)
    monkeypatch.setattr(plugins, "_loaded", {})
    return module
