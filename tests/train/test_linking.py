"""Machine code is made once: in the functions that Python calls."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np
from rltuned.lab.kernel.compiler import compiled, entry
import numba

@compiled
def inner(values):
    total = 0.0
    for value in np.sort(values):
        total = total * 0.5 + value
    return total

@compiled
def middle(values):
    if values.size > 3:
        raise ValueError("too many")
    return inner(values) + inner(values[1:])

@entry
def first(values):
    return middle(values)

@entry
def second(values):
    return middle(values) - inner(values)

@numba.njit
def other(values):
    return middle(values)

values = np.array([3.0, 1.0, 2.0])
assert first(values) == inner.py_func(values) + inner.py_func(values[1:]) == other(values)
assert second(values) == first(values) - inner.py_func(values)
for function in (first, second, other):
    try:
        function(np.arange(4.0))
    except ValueError as error:
        assert str(error) == "too many"
    else:
        raise AssertionError(function)
print(*(type(made.library).__name__ for f in (inner, first) for made in f.overloads.values()))
"""


def test_only_an_entry_is_made_into_machine_code(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    said = []
    for _ in range(2):  # the second time from what is kept on disk
        run = subprocess.run(
            [sys.executable, tmp_path / "program.py"],
            capture_output=True,
            text=True,
            check=True,
            env={"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(Path.cwd())},
        )
        said.append(run.stdout.split())
    assert said == [["_InnerCode", "JITCodeLibrary"]] * 2
