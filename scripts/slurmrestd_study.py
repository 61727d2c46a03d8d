"""What reading through slurmrestd would cost and tell (`python -m scripts.slurmrestd_study`).

Starts a test cluster with JSON web tokens, a slurmrestd on a socket in its folder, fills the queue,
and reads it both ways (all jobs held). Needs root, slurmrestd and Slurm's JWT plugin. With another
release:
    scripts/other-slurm.sh run DIR .venv/bin/python -m scripts.slurmrestd_study
Prints JSON: seconds (median, least, most), bytes, processor seconds and memory of slurmrestd.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from tests.lab import SEARCH, LabError, SlurmLab

NOBODY = "65534"  # nobody; some releases know no name here
TICKS = os.sysconf("SC_CLK_TCK")
FIGURES = (
    "pending", "text_whole", "text_cpu_s_per_round", "rest_answers", "slurmrestd_cpu_s_per_round",
    "json_cpu_s_per_round", "bytes", "slurmrestd_peak_mib",
)  # fmt: skip
PARTED = 250
"""Tasks that one update makes records of, well within Slurm's MessageTimeout."""
ASKED = ("jobs/", "nodes/", "partitions/")


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=300)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(300)
        self.sock.connect(str(self._path))


def plugins(lab: SlurmLab) -> list[str]:
    """The API versions that this slurmrestd has."""
    said = lab.run("slurmrestd", "-s", "list", check=False)
    said += lab.run("slurmrestd", "-d", "list", check=False)
    return sorted(set(re.findall(r"v0\.0\.\d+", said)))


def get(path: Path, token: str, url: str) -> tuple[int, bytes]:
    """One answer, whole."""
    connection = _Unix(path)
    headers = {"X-SLURM-USER-NAME": "root", "X-SLURM-USER-TOKEN": token}
    connection.request("GET", url, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def usage(pid: int) -> tuple[float, float]:
    """Processor seconds so far and peak memory in MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return (int(fields[11]) + int(fields[12])) / TICKS, int(peak[1]) / 1024 if peak else 0.0


def own_cpu() -> float:
    """Processor seconds of this process and of the children that it waited for."""
    told = os.times()
    return told.user + told.system + told.children_user + told.children_system


def spread(seconds: list[float]) -> dict[str, float]:
    return {
        "median_s": round(statistics.median(seconds), 3),
        "least_s": round(min(seconds), 3),
        "most_s": round(max(seconds), 3),
    }


def fill(lab: SlurmLab, count: int) -> None:
    """So many pending records: an array, parted by one update."""
    job = lab.sbatch(f"--array=0-{count - 1}", "-n16", "-N1", "-wp1", "--gres=gpu:p100:4", "--hold")
    # all but one, for the whole set would change the head record and part nothing
    for first in range(1, count, PARTED):
        last = min(first + PARTED, count) - 1
        lab.run("scontrol", "update", f"JobId={job}_[{first}-{last}]", "Nice=1", timeout_s=300)


def measure(lab: SlurmLab, sock: Path, pid: int, version: str, rounds: int) -> dict[str, Any]:
    """Both ways to read, turn by turn."""
    token = lab.run("scontrol", "token", "username=root", "lifespan=3600").strip().partition("=")[2]
    backend = SlurmBackend(SlurmCli(conf=lab.conf, timeout_s=300), time.time)
    text, rest, parsed = [], [], []
    text_cpu = parse_cpu = 0.0
    size: dict[str, int] = {}
    answers: dict[str, Any] = {}
    before = usage(pid)[0]
    for _ in range(rounds):
        began, spent = time.perf_counter(), own_cpu()
        seen = backend.observe()
        text.append(time.perf_counter() - began)
        text_cpu += own_cpu() - spent
        began = time.perf_counter()
        bodies = {}
        for what in ASKED:
            status, body = get(sock, token, f"/slurm/{version}/{what}")
            if status != http.client.OK:
                raise SystemExit(f"{what}: {status} {body[:400]!r}")
            bodies[what] = body
        rest.append(time.perf_counter() - began)
        began, spent = time.perf_counter(), own_cpu()
        answers = {what: json.loads(body) for what, body in bodies.items()}
        parsed.append(time.perf_counter() - began)
        parse_cpu += own_cpu() - spent
        size = {what: len(body) for what, body in bodies.items()}
    total, peak = usage(pid)
    jobs = answers["jobs/"]["jobs"]
    return {
        "api": version,
        "pending": len(seen.pending),
        "jobs_of_rest": len(jobs),
        "text_whole": spread(text),
        "rest_answers": spread(rest),
        "rest_json_parsed": spread(parsed),
        "text_cpu_s_per_round": round(text_cpu / rounds, 3),
        "json_cpu_s_per_round": round(parse_cpu / rounds, 3),
        "bytes": size,
        "slurmrestd_cpu_s_per_round": round((total - before) / rounds, 3),
        "slurmrestd_peak_mib": round(peak, 1),
        "job_keys": sorted(jobs[0]) if jobs else [],
        "node_keys": sorted(answers["nodes/"]["nodes"][0]),
        "partition": answers["partitions/"]["partitions"][0],
        "one_job": jobs[-1] if jobs else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.slurmrestd_study")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--api", help="version; default: the newest that it has")
    parser.add_argument("--whole", action="store_true", help="one job and one partition as well")
    given = parser.parse_args()
    if shutil.which("slurmrestd", path=SEARCH) is None:
        sys.stderr.write("slurmrestd is not installed\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="rltrest-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        key = folder / "jwt.key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        extra = (
            "AuthAltTypes=auth/jwt",
            f"AuthAltParameters=jwt_key={key}",
            "MaxArraySize=20001",
            "MaxJobCount=50000",
        )
        with SlurmLab(extra=extra) as lab:
            found = study(lab, folder, given.jobs, given.rounds, given.api)
    for row in found["rows"]:
        if not given.whole:
            for name in ("one_job", "partition", "job_keys", "node_keys"):
                row.pop(name)
    json.dump(found, sys.stdout, indent=1)
    return 0


def study(
    lab: SlurmLab, folder: Path, sizes: list[int], rounds: int, api: str | None
) -> dict[str, Any]:
    """Start slurmrestd and read queues of these sizes."""
    versions = plugins(lab)
    version = api or versions[-1]
    home = folder / "rest"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    sock = home / "s"
    server = subprocess.Popen(
        ["slurmrestd", "-u", NOBODY, "-g", NOBODY, "-a", "rest_auth/jwt", f"unix:{sock}"],
        env={**lab.environ(), "SLURM_JWT": "daemon"},
        stdout=(folder / "out").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        try:
            lab.wait_for(sock.exists, 30, "slurmrestd listens")
        except LabError:
            sys.stderr.write((folder / "out").read_text())
            raise
        pid = server.pid
        rows, last = [], 0
        for size in sorted(sizes):
            fill(lab, size - last)
            last = size
            rows.append(measure(lab, sock, pid, version, rounds))
            sys.stderr.write(json.dumps({k: rows[-1][k] for k in FIGURES}) + "\n")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)
    return {
        "slurm": lab.run("slurmctld", "-V").strip(),
        "api_versions": versions,
        "load_average": os.getloadavg(),
        "rows": rows,
    }


if __name__ == "__main__":
    sys.exit(main())
