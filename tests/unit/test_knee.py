"""rltuned_knee of deploy/job_submit.lua in Lua itself, on 10,000 odd comments."""

import ctypes
import ctypes.util
from pathlib import Path

import numpy as np
import pytest

from tests.needs import skip_or_fail

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "job_submit.lua"
FUZZED = 10_000
DRIVER = """
slurm = {{ NO_VAL64 = 0, SUCCESS = 0 }}
dofile({script!r})
local answers = {{}}
for line in io.lines({jobs!r}) do
  local least, most, hex = line:match("^(%d+) (%d+) (%x*)$")
  local comment = hex:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end)
  local job = {{ min_nodes = tonumber(least), max_nodes = tonumber(most), comment = comment }}
  local done, why = pcall(rltuned_knee, job)
  answers[#answers + 1] = done and string.format("%d %d", job.min_nodes, job.max_nodes) or why
end
return table.concat(answers, "\\n")
"""


def knees(folder: Path, jobs: list[tuple[int, int, bytes]]) -> list[str]:
    """By job (fewest and most nodes, comment) its nodes after the script, or Lua's error."""
    name = ctypes.util.find_library("lua5.3")
    if name is None:
        skip_or_fail("not installed: liblua5.3 (Debian: liblua5.3-0)")
    lua = ctypes.CDLL(name)
    lua.luaL_newstate.restype = ctypes.c_void_p
    lua.lua_tolstring.restype = ctypes.c_char_p
    path = folder / "jobs"
    path.write_text("".join(f"{low} {high} {text.hex()}\n" for low, high, text in jobs))
    program = DRIVER.format(script=str(SCRIPT), jobs=str(path)).encode()
    state = ctypes.c_void_p(lua.luaL_newstate())
    lua.luaL_openlibs(state)
    code = lua.luaL_loadstring(state, program) or lua.lua_pcallk(state, 0, 1, 0, 0, None)
    out = lua.lua_tolstring(state, -1, None).decode()
    lua.lua_close(state)
    assert code == 0, out
    return str(out).splitlines()


@pytest.mark.parametrize(
    ("nodes", "comment", "most"),
    [
        ((1, 8), "rltuned.speed=1:1,2:1.9,4:3.4,8:4", 4),
        ((1, 8), "rltuned.speed=1:1,2:1.9,4:3.4,8:6", 8),
        ((1, 8), "rltuned.speed=1:1,2:1.9", 8),
        ((1, 3), "rltuned.speed=1:1,2:1.9,4:2", 3),
        ((4, 8), "rltuned.speed=1:1,2:1.1", 4),
        ((2, 8), "rltuned.speed=2:10,4:19,8:20", 4),
        ((1, 8), "rltuned.speed=2:1,1:1", 8),
        ((1, 8), "xrltuned.speed=1:1,2:1", 8),
        ((1, 8), "a rltuned.speed=1:1,2:1 b", 1),
        ((3, 3), "rltuned.speed=1:1,2:1", 3),
    ],
)
def test_by_hand(tmp_path: Path, nodes: tuple[int, int], comment: str, most: int) -> None:
    assert knees(tmp_path, [(*nodes, comment.encode())]) == [f"{nodes[0]} {most}"]


def test_ten_thousand_comments_raise_nothing_and_leave_no_range(tmp_path: Path) -> None:
    rng = np.random.default_rng(22)
    parts = [
        b"rltuned.speed=", b"rltuned.nodes=1-4", b" ", b",", b":", b"1:1", b"2:1.9", b"4:3.4",
        b"8:0", b"-1", b"1e9", b"9" * 400, b".", b"%d", b"\xff\x00", b"\n", b"nan", b"inf",
    ]  # fmt: skip
    jobs = []
    for _ in range(FUZZED):
        words = [parts[i] for i in rng.integers(0, len(parts), rng.integers(0, 12))]
        if rng.random() < 0.5:
            counts = sorted({int(n) for n in rng.integers(1, 12, 4)})
            speeds = b",".join(b"%d:%.2f" % (n, rng.uniform(0, n)) for n in counts)
            words.append(b" rltuned.speed=" + speeds)
        low = int(rng.integers(1, 5))
        jobs.append((low, low + int(rng.integers(0, 9)), b"".join(words)))
    found = knees(tmp_path, jobs)
    assert len(found) == FUZZED
    capped = 0
    for (low, high, comment), answer in zip(jobs, found, strict=True):
        least, most = map(int, answer.split())
        assert (least, True) == (low, low <= most <= high)
        assert most == high or b"rltuned.speed=" in comment
        capped += most < high
    assert capped > FUZZED / 100
