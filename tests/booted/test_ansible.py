"""The Ansible role on a booted machine: fresh, again without a change, with other settings."""

from pathlib import Path

import pytest

from tests.booted.machine import Machine

ROLE = Path(__file__).resolve().parents[2] / "deploy" / "ansible"
PLAY = (
    "cd /srv/ansible && ansible-playbook -i localhost, -c local site.yml"
    " -e rltuned_deb=/srv/rltuned.deb -e rltuned_grant_operator=true"
)
WATCHING = (
    """ -e '{"rltuned_settings": {"daemon": {"interval_s": 5}, "policy": {"name": "saf"}}}'"""
)
WRONG = """ -e '{"rltuned_settings": {"daemon": {"interval_s": "often"}}}'"""

pytestmark = pytest.mark.timeout(3000)


def test_the_role_is_understood(machine: Machine, package: Path) -> None:
    machine.copy(ROLE, "/srv/ansible")
    machine.copy(package, "/srv/rltuned.deb")
    assert machine.run(f"{PLAY} --syntax-check").code == 0


def test_it_installs_and_starts(machine: Machine) -> None:
    machine.do(PLAY + WATCHING, timeout_s=500)
    assert machine.do("systemctl is-active rltuned").strip() == "active"
    assert "Operator" in machine.do("sacctmgr -n list user rltuned format=adminlevel")
    assert 'name = "saf"' in machine.do("cat /etc/rltuned/rltuned.toml")
    assert "rltuned.8" in machine.do("man -w 8 rltuned")


def test_a_second_run_changes_nothing(machine: Machine) -> None:
    out = machine.do(PLAY + WATCHING, timeout_s=500)
    assert "changed=0" in out, out


def test_settings_that_are_wrong_are_not_installed(machine: Machine) -> None:
    before = machine.do("cat /etc/rltuned/rltuned.toml")
    failed = machine.run(PLAY + WRONG, timeout_s=500)
    assert failed.code != 0
    assert "interval_s" in failed.text
    assert machine.do("cat /etc/rltuned/rltuned.toml") == before
    assert machine.do("systemctl is-active rltuned").strip() == "active"
