"""Two instances and a timer through upgrade, removal, installation and purge, Slurm up and down.

A story in order: every test goes on where the one before it stopped, as an administrator would.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.booted.cluster import priorities, submit, written_to
from tests.booted.machine import Machine

COMMON = """\
[policy]
name = "saf"
[ladder]
stage = "full"
"""
MAIN = (
    COMMON
    + """\
[daemon]
interval_s = 2
[scope]
partitions = ["gpu"]
min_age_s = 0
"""
)
TWO = (
    COMMON
    + """\
[daemon]
interval_s = 2
state_dir = "/var/lib/rltuned/two"
pause_file = "/run/rltuned/two/PAUSE"
[scope]
partitions = ["sla"]
min_age_s = 0
[http]
port = 9842
"""
)
UNITS = ("rltuned", "rltuned@two", "rltuned-tune.timer")
SERVICES = ("rltuned", "rltuned@two", "rltuned-tune")
ANYWAY = "/run/rltuned.remove-anyway"
EXAMPLES = "/usr/share/doc/rltuned/examples"

pytestmark = pytest.mark.timeout(3000)


def active(machine: Machine) -> set[str]:
    return {unit for unit in UNITS if machine.run(f"systemctl is-active {unit}").code == 0}


def start(machine: Machine) -> None:
    """Both daemons run, and each has written to jobs of its partition."""
    machine.do(f"systemctl enable --now {' '.join(UNITS)}")
    machine.until(lambda: written(machine) == {"gpu", "sla"}, 60, "not both daemons have written")


def written(machine: Machine) -> set[str]:
    ours = written_to(machine)
    rows = machine.do("squeue -h -t PD -o '%i %P'").splitlines()
    return {name for job, name in map(str.split, rows) if int(job) in ours}


def slurmctld(machine: Machine, word: str) -> None:
    machine.do(f"systemctl {word} slurmctld", timeout_s=120)
    if word == "start":
        machine.until(lambda: machine.run("squeue -h").code == 0, 60, "slurmctld does not answer")


def remedy(machine: Machine, check: str, user: str) -> str:
    """The command that `rltuned check` names for one of its findings."""
    out = machine.run("rltuned check", user=user).text
    found = re.search(rf"^(?:warn|FAIL) +{check}: .*\n +remedy: (.+)$", out, re.MULTILINE)
    assert found is not None, out
    return found[1]


def test_the_remedies_for_rights_are_right_in_the_state_that_they_are_reported_in(
    machine: Machine, package: Path
) -> None:
    machine.copy(package, "/srv/rltuned.deb")
    machine.do("dpkg -i /srv/rltuned.deb", timeout_s=400)
    unknown = remedy(machine, "rights", "rltuned")
    assert unknown.startswith("sacctmgr -i add user rltuned ")
    machine.do(unknown)
    assert "Operator" in machine.do("rltuned check", user="rltuned")
    machine.do("sacctmgr -i modify user rltuned set adminlevel=None")
    powerless = remedy(machine, "rights", "rltuned")
    assert powerless.startswith("sacctmgr -i modify user rltuned ")
    machine.do(powerless)
    assert "Operator" in machine.do("rltuned check", user="rltuned")


def test_two_instances_write(machine: Machine) -> None:
    for partition in ("gpu", "sla"):
        for hours in (9, 3, 6, 5):
            submit(machine, "alice", "--gres=gpu:4", f"--time={hours}:00:00", "-p", partition)
    machine.until(lambda: len(priorities(machine)) == 7, 30, "one job should run, seven wait")
    machine.write("/etc/rltuned/rltuned.toml", MAIN)
    machine.write("/etc/rltuned/two.toml", TWO)
    start(machine)
    assert active(machine) == set(UNITS)


def test_an_upgrade_brings_all_of_them_back(
    machine: Machine, package: Path, tmp_path: Path
) -> None:
    tree, newer = tmp_path / "tree", tmp_path / "newer.deb"
    subprocess.run(["dpkg-deb", "-R", str(package), str(tree)], check=True, timeout=120)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"^(Version: .*)-1$", r"\1-2", control.read_text(), flags=re.M))
    subprocess.run(
        ["dpkg-deb", "-Zgzip", "-z0", "-b", str(tree), str(newer)], check=True, timeout=300
    )
    shutil.rmtree(tree)
    machine.copy(newer, "/srv/newer.deb")
    machine.do("dpkg -i /srv/newer.deb", timeout_s=400)
    assert active(machine) == set(UNITS)
    machine.until(lambda: written(machine) == {"gpu", "sla"}, 60, "not both write again")


def test_without_slurmctld_a_removal_is_refused_and_everything_runs_on(machine: Machine) -> None:
    slurmctld(machine, "stop")
    refused = machine.run("apt-get remove -y -qq rltuned", timeout_s=600)
    assert refused.code != 0
    assert "it is not removed: jobs would keep what rltuned wrote to them" in refused.text
    assert "of /var/lib/rltuned/journal.sqlite not every job" in refused.text
    assert "of /var/lib/rltuned/two/journal.sqlite not every job" in refused.text
    assert machine.do("dpkg-query -W -f '${Status}' rltuned").endswith(" installed")
    assert active(machine) == set(UNITS)
    slurmctld(machine, "start")
    machine.until(lambda: written(machine) == {"gpu", "sla"}, 60, "not both write again")


def test_a_removal_gives_back_what_every_instance_wrote(machine: Machine) -> None:
    done = machine.do("apt-get remove -y -qq rltuned", timeout_s=600)
    assert not written_to(machine)
    assert "user rltuned still has the level Operator" in done
    assert (machine.root / "var/lib/rltuned/two/journal.sqlite").exists()
    assert not list((machine.root / "etc/systemd/system").glob("*.wants/rltuned*"))


def test_installed_again_they_are_enabled_as_before(machine: Machine) -> None:
    out = machine.do("dpkg -i /srv/newer.deb", timeout_s=400)
    assert "enabled as before the removal, not started" in out
    assert active(machine) == set()
    for unit in UNITS:
        assert machine.do(f"systemctl is-enabled {unit}").strip() == "enabled"
    start(machine)


def test_removed_by_force_nothing_is_lost_until_it_is_purged_by_force(machine: Machine) -> None:
    slurmctld(machine, "stop")
    machine.do(f"touch {ANYWAY}")
    out = machine.do("apt-get remove -y -qq rltuned", timeout_s=600)
    assert "removed all the same" in out
    machine.do(f"rm {ANYWAY}")
    refused = machine.run("apt-get purge -y -qq rltuned", timeout_s=200)
    assert refused.code != 0
    assert "/var/lib/rltuned/two/journal.sqlite" in refused.text
    assert (machine.root / "var/lib/rltuned/journal.sqlite").exists()
    slurmctld(machine, "start")
    assert written(machine) == {"gpu", "sla"}
    machine.do("dpkg -i /srv/newer.deb", timeout_s=400)
    machine.do("rltuned restore --all", user="rltuned", timeout_s=200)
    machine.do("rltuned restore --all --config /etc/rltuned/two.toml", user="rltuned")
    assert not written_to(machine)


def test_a_purge_leaves_nothing(machine: Machine) -> None:
    start(machine)
    machine.do("apt-get purge -y -qq rltuned", timeout_s=600)
    assert not written_to(machine)
    left = machine.do(
        "find / -xdev -path /proc -prune -o -path /sys -prune -o -path /srv -prune"
        " -o -path /var/lib/dpkg -prune -o -path /var/log -prune -o -name '*rltuned*' -print"
    ).split()
    assert left == []


def test_as_slurm_user_the_remedies_lead_to_a_daemon_that_writes(machine: Machine) -> None:
    machine.do("sacctmgr -i remove user rltuned")
    machine.do("dpkg -i /srv/rltuned.deb", timeout_s=400)
    for unit in SERVICES:
        machine.do(f"install -D -m 644 {EXAMPLES}/slurmuser.conf "
                   f"/etc/systemd/system/{unit.partition('@')[0]}{'@' if '@' in unit else ''}"
                   ".service.d/slurmuser.conf")  # fmt: skip
    machine.do("systemctl daemon-reload")
    machine.do(remedy(machine, "journal", "slurm"))
    found = machine.run("rltuned check", user="slurm")
    assert "FAIL" not in found.text, found.text
    machine.write("/etc/rltuned/rltuned.toml", MAIN)
    machine.write("/etc/rltuned/two.toml", TWO)
    start(machine)
    owner = machine.do("stat -c %U /var/lib/rltuned/two/journal.sqlite").strip()
    assert owner == "slurm"


def test_as_slurm_user_it_can_be_upgraded_and_removed(machine: Machine) -> None:
    machine.do("dpkg -i /srv/newer.deb", timeout_s=400)
    assert active(machine) == set(UNITS)
    assert machine.do("stat -c %U /var/lib/rltuned").strip() == "slurm"
    machine.until(lambda: written(machine) == {"gpu", "sla"}, 60, "not both write again")
    machine.do("apt-get remove -y -qq rltuned", timeout_s=600)
    assert not written_to(machine)
