"""Names, folders, commands of jobs: a daemon reads them, and nothing that it leaves has them."""

import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.journal.cycles import recorded
from rltuned.journal.store import FILE_NAME, SALT_FILE
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL, waiting
from tests.lab import SlurmLab
from tests.programs import rltuned

pytestmark = pytest.mark.slurm
PRIVATE = "nobodysbusiness"


def left(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, and the journal's bodies unpacked."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with closing(sqlite3.connect(folder / FILE_NAME)) as db:
        for number, (body,) in enumerate(db.execute("SELECT body FROM snapshots")):
            found[f"snapshot {number}"] = zlib.decompress(body)
    return found


def test_no_name_is_left_anywhere_and_names_alike_have_one_digest(
    slurm: SlurmLab, config: Path, tmp_path: Path
) -> None:
    state, private = tmp_path / "state", slurm.root / PRIVATE
    state.mkdir(mode=0o700)
    private.mkdir(exist_ok=True)
    text = config.read_text().replace(f'state_dir = "{tmp_path}"', f'state_dir = "{state}"')
    config.write_text(text + 'jobs = true\nusers = true\n[ladder]\nstage = "shadow"\n')
    waiting(slurm)
    script = private / f"{PRIVATE}.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    words = ("sbatch", "--parsable", "--output=/dev/null", *FULL, f"--chdir={private}", "--time=5")
    ids = [
        int(slurm.run(*words, f"--job-name={PRIVATE}_{n:03}", str(script), PRIVATE)) for n in (1, 2)
    ]
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log("proposed=", times=3)
        shown = [daemon.get(path) for path in ("/metrics", "/", "/status.json")]
        out = rltuned("status", "--json", config=config)
        log = daemon.log()
    assert any(f"{ids[0]}" in text for text in shown)
    for name, content in left(state).items():
        assert PRIVATE.encode() not in content, name
    assert all(PRIVATE not in text for text in (*shown, log, str(out)))
    last = list(recorded(state / FILE_NAME))[-1].snapshot
    kinds = [job.kinds for job in last.pending if job.job_id in ids]
    assert len(kinds) == 2
    assert kinds[0] == kinds[1]
    assert 0 not in (kinds[0].name, kinds[0].command, kinds[0].work_dir)
    assert (state / SALT_FILE).stat().st_mode & 0o777 == 0o600
    assert "kinds" not in json.loads(shown[2])["jobs"][0]


def test_a_damaged_salt_costs_the_kinds_and_nothing_else(
    slurm: SlurmLab, config: Path, tmp_path: Path
) -> None:
    waiting(slurm)
    (tmp_path / SALT_FILE).write_bytes(b"short")
    (tmp_path / SALT_FILE).chmod(0o600)
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log("proposed=", times=2)
        assert "no_kinds" in daemon.log()
    last = list(recorded(tmp_path / FILE_NAME))[-1].snapshot
    assert {job.kinds.name for job in last.pending} == {0}
    assert (tmp_path / SALT_FILE).read_bytes() == b"short"
