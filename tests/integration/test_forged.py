"""A user who watches rltuned's commands and changes his own job changes nothing of another's.

He has the best of all chances: squeue begins only when he has read what he can of it and has
written what he likes into his own job.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.domain.kinds import Digester
from rltuned.domain.units import JobId
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import JOB_COLUMNS
from rltuned.slurm.run import SlurmCli
from tests.accounting import PLAIN
from tests.clusters import module_lab, world_of
from tests.lab import SlurmLab
from tests.programs import executable

pytestmark = pytest.mark.slurm
SHOTS = 50
DIGESTER = Digester(bytes(range(32)))
ATTACK = r"""
import json, re, subprocess, sys
pid, own, rival, columns = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4].split(",")
seen = b""
for name in ("cmdline", "environ"):
    try:
        seen += open(f"/proc/{pid}/{name}", "rb").read()
    except OSError:
        pass
found = sorted({m.decode() for m in re.findall(b"[\x1e\x1f][0-9a-f]{6,}", seen)})
asked = ",".join(f"{name}:\x1f" for name in columns)
shown = subprocess.run(
    ["squeue", "-h", "-a", "-j", rival, "-O", asked], capture_output=True, text=True
).stdout
cells = dict(zip(columns, shown.split("\x1f")))
cells |= {"tres-per-node": "gres:gpu:p100:8", "timelimit": "30-00:00:00", "account": "forged"}
cells |= {"submittime": "1000000000", "username": "news"}
records = [m for m in found if m[0] == "\x1e"] or ["\x1e"]
texts = [m for m in found if m[0] == "\x1f"] or ["\x1f"]
forged = texts[0] * 3 + records[0] + "\n" + "\x1f".join(cells[name] for name in columns)
forged = "/" + forged + "\nJobId=" + rival + " ArrayJobId=" + rival + " ArrayTaskId=0-9 Priority=1"
done = [
    subprocess.run(["scontrol", "update", f"JobId={own}", f"{key}={forged}"]).returncode
    for key in ("WorkDir", "Comment", "JobName")
]
print(json.dumps({"found": found, "done": done}))
"""

lab = module_lab()


@pytest.fixture(scope="module")
def own(lab: SlurmLab) -> int:
    """The attacker's job, which waits as the rival's do."""
    held = [lab.sbatch("--gres=gpu:p100:4", "-n16", "-N1", f"-w{node}") for node in ("p1", "p2")]
    lab.wait_for(lambda: {lab.state(job) for job in held} == {"R"}, "both p nodes busy")
    return lab.sbatch("--gres=gpu:p100:1", "-t60", f"--uid={PLAIN}", "--begin=now+1hour")


def watched(lab: SlurmLab, own: int, rival: int, folder: Path) -> SlurmBackend:
    """rltuned with a squeue that waits for the attacker. What he did stands in folder/shots."""
    (folder / "attack.py").write_text(ATTACK)
    search = lab.environ()["PATH"]
    for name in ("sinfo", "sprio", "scontrol", "sdiag"):
        executable(folder / name, f'#!/bin/sh\nPATH={search} exec {name} "$@"\n')
    columns = ",".join(JOB_COLUMNS)
    executable(
        folder / "squeue",
        f"#!/bin/sh\nexport PATH={search}\n"
        f"env -i PATH={search} SLURM_CONF={lab.conf} SLURM_TIME_FORMAT=%s "
        f"setpriv --reuid={PLAIN} --regid={PLAIN} --clear-groups "
        f"/usr/bin/env python3 - $$ {own} {rival} {columns} "
        f'<{folder}/attack.py >>{folder}/shots 2>>{folder}/complaints\nexec squeue "$@"\n',
    )
    return SlurmBackend(SlurmCli(bin_dir=folder, conf=lab.conf), time.time, digester=DIGESTER)


def what_it_is(job: PendingJob) -> PendingJob:
    """Without what Slurm changes of itself."""
    state: dict[str, Any] = {
        "priority": 0,
        "site_factor": None,
        "base": None,
        "rest": None,
        "fair": None,
    }
    state |= dict.fromkeys(("fixed", "live", "uneven", "sticky"), False)
    return replace(job, **state, reason="", accrue_at=None, eligible_at=None)


@pytest.mark.parametrize("rival", [(), ("--array=0-9:2",)], ids=["a job", "an array"])
def test_a_watched_look_shows_nothing_forged(
    lab: SlurmLab, own: int, tmp_path: Path, rival: tuple[str, ...]
) -> None:
    number = lab.sbatch("--gres=gpu:p100:1", "-n1", "-t60", "-J", "train", *rival)
    honest = world_of(lab, digester=DIGESTER)
    before = {job.job_id: what_it_is(job) for job in honest.observe().pending}
    world = watched(lab, own, number, tmp_path)
    for _ in range(SHOTS):
        seen = world.observe()
        assert not seen.unreadable
        after = {job.job_id: what_it_is(job) for job in seen.pending}
        assert before == {**after, JobId(own): before[JobId(own)]}
        assert world.speeds(JobId(number)) == {}
    shots = [json.loads(line) for line in (tmp_path / "shots").read_text().splitlines()]
    assert len(shots) > SHOTS
    assert [shot["found"] for shot in shots] == [[]] * len(shots)
    assert {0 in shot["done"] for shot in shots} == {True}, (tmp_path / "complaints").read_text()
