"""docs/install.md, typed as it stands on a machine with Slurm; manual pages and completion."""

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.booted.cluster import priorities, sprio, submit
from tests.booted.machine import ROOTS, Machine
from tests.pages import ROOT, Typed, differs, session

PAGE = ROOT / "docs" / "install.md"
STEPS = list(session(PAGE.read_text()))
PATIENT = ("rltuned status", "curl ")
"""Asked again for a while: the first cycle takes a moment."""
PLACE = "/srv/quickstart"
USER = "alice"

pytestmark = pytest.mark.timeout(3000)


def type_in(machine: Machine, step: Typed) -> str:
    """Run a line of the page; its output."""
    user = "root" if step.is_root else USER
    line = f"cd {PLACE} && {step.command}"
    if step.command.startswith(PATIENT):
        machine.until(lambda: machine.run(line, user=user).code == 0, 90, f"{step.command}: fails")
    done = machine.run(line, user=user, timeout_s=600)
    assert done.code == 0, f"docs/install.md:{step.line}: {step.command}\n{done.text}"
    return done.text


def rest_of(first: str) -> list[Typed]:
    """The steps from one on."""
    at = next(i for i, step in enumerate(STEPS) if step.command.startswith(first))
    return STEPS[at:]


def test_every_command_of_the_page_works_and_shows_what_it_shows(
    machine: Machine, package: Path
) -> None:
    machine.copy(package, f"{PLACE}/{package.name}")
    for hours in (9, 3, 6):
        submit(machine, USER, "--gres=gpu:4", f"--time={hours}:00:00")
    machine.until(lambda: len(priorities(machine)) == 2, 30, "one job should run, two wait")
    before = sprio(machine)
    began = time.monotonic()
    removal = rest_of("apt-get remove")
    for step in STEPS[: len(STEPS) - len(removal)]:
        wrong = differs(step.shown, type_in(machine, step))
        assert not wrong, f"docs/install.md:{step.line}: {step.command}: not shown: {wrong}"
    assert sprio(machine) == before, "a dry run changes nothing"
    out = machine.do("journalctl -u rltuned -o cat --no-pager")
    machine.until(
        lambda: "proposal" in machine.do("journalctl -u rltuned -o cat --no-pager"), 120, out
    )
    took = f"quick start typed by a machine: {time.monotonic() - began:.0f} s\n"
    (ROOTS / "quickstart.txt").write_text(took)


def test_the_manual_is_installed(machine: Machine) -> None:
    for page, word in (("1 rltuned", "explain"), ("8 rltuned", "SIGHUP"),
                       ("5 rltuned.toml", "sla_partitions")):  # fmt: skip
        shown = machine.do(f"man -P cat {page}")
        assert word in re.sub(r".\x08", "", shown)
    assert "priority daemon" in machine.do("mandb -q; whatis rltuned")


def test_bash_completes(machine: Machine) -> None:
    machine.write(
        "/srv/complete.bash",
        ". /usr/share/bash-completion/completions/rltuned\n"
        "COMP_WORDS=(rltuned ex) COMP_CWORD=1\n"
        '_rltuned_completion rltuned; echo "${COMPREPLY[@]}"\n',
    )
    assert set(machine.do("bash /srv/complete.bash").split()) >= {"explain", "export"}


def test_fish_completes(machine: Machine) -> None:
    found = machine.do("fish -c 'complete -C \"rltuned ex\"'")
    assert {line.split()[0] for line in found.splitlines()} >= {"explain", "export"}


def test_zsh_completes_at_the_first_tab(machine: Machine) -> None:
    machine.write(
        "/srv/complete.zsh",
        "zmodload zsh/zpty\n"
        "zpty shell TERM=dumb PS1='' zsh -f -i\n"
        "zpty -w shell \"autoload -Uz compinit; compinit -u -D; print re''ady\"\n"
        "zpty -r -m shell line '*ready*'\n"
        "zpty -w -n shell $'rltuned rest\\t'\n"
        "zpty -r -m shell line '*restore*' && print completed\n",
    )
    assert "completed" in machine.do("timeout 60 zsh -f /srv/complete.zsh")


def test_the_last_commands_take_it_away(machine: Machine) -> None:
    before = sprio(machine)
    for step in rest_of("apt-get remove"):
        type_in(machine, step)
    assert sprio(machine) == before
    assert not (machine.root / "usr/share/man/man8/rltuned.8.gz").exists()


def test_the_package_that_the_page_names_is_the_one_that_is_made(package: Path) -> None:
    named = re.search(r"rltuned_\S+\.deb", PAGE.read_text())
    assert named is not None
    assert package.name.replace("arm64", "amd64") == named[0]
    assert shutil.which("dpkg-deb")
