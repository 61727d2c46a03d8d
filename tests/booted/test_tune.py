"""A night of the packaged service on a booted machine, on jobs that really waited there."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.booted import cluster
from tests.booted.conftest import booted
from tests.booted.machine import Machine
from tests.real_jobs import BY_AGE, JOBS, Site, add_users, check_night, play, sped_up

pytestmark = pytest.mark.timeout(5_400)

GPUS = 72
SHORT = """\
[Service]
ExecStart=
ExecStart=/usr/bin/rltuned tune --minutes 8 --test-period 6d
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    with booted() as machine:
        cluster.set_up(machine, GPUS, BY_AGE)
        yield machine


def site_of(machine: Machine) -> Site:
    """The machine, for tests.real_jobs."""

    def query(text: str) -> str:
        return machine.do(f"mariadb -N slurm_acct_db -e {shlex.quote(text)}")

    def run(user: str, argv: tuple[str, ...]) -> str:
        # the arithmetic of a job's script is for its shell
        return machine.do(shlex.join(argv), user=user)

    return Site("booted", query, run)


def test_a_night_of_the_unit_on_real_jobs(
    machine: Machine, package: Path, training_package: Path
) -> None:
    """Three users, four kinds of jobs, and the unit as it is but for its minutes."""
    site = site_of(machine)
    add_users(site)
    for file in (package, training_package):
        machine.copy(file, f"/srv/{file.name}")
        machine.do(f"apt-get install -y -qq /srv/{file.name}", timeout_s=600)
    machine.do("sacctmgr -i add user rltuned account=root adminlevel=operator")
    machine.write("/etc/rltuned/rltuned.toml", '[policy]\nname = "tuned"\n')
    machine.write("/etc/systemd/system/rltuned-tune.service.d/short.conf", SHORT)
    machine.do("systemctl daemon-reload")
    play(site, JOBS)
    record = sped_up(site)
    machine.do("systemctl start rltuned-tune.service", timeout_s=400)
    models = "/var/lib/rltuned/models"
    found = json.loads(machine.do(f"cat {models}/last-night/results.json"))
    check_night(record, found)
    made = found["generation"]
    assert (made is not None) == (found["verdict"] == "proposed")
    assert json.loads(machine.do(f"cat {models}/tune.json"))["failed"] == 0
    listed = machine.do("rltuned models list", user="rltuned")
    assert made is None or made in listed
