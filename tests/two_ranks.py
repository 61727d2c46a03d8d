"""Two processes of one training, started as torchrun would start them."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def start(module: str, *words: str) -> list["subprocess.Popen[str]"]:
    """Both, the first rank first; what they print is in their stdout."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    env = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *words],
            env=env | {"RANK": str(rank)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def meet(folder: Path) -> None:
    """In a rank: wait until the other one is here too: imports count for no bound of a test."""
    rank = int(os.environ["RANK"])
    (folder / f"rank-{rank}").touch()
    while not (folder / f"rank-{1 - rank}").exists():
        time.sleep(0.05)
