"""The package from installation to purge on a booted Debian 12 with a real Slurm: a story in order.

Every test goes on where the one before it stopped, as an administrator would.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.booted.cluster import priorities, sprio, submit, written_to
from tests.booted.machine import Machine

OBSERVING = """\
[daemon]
interval_s = 2
[policy]
name = "saf"
[scope]
sla_partitions = ["sla"]
min_age_s = 0
[order]
own = 3.0
[limits]
hysteresis = 0.0
"""
SHADOWING = OBSERVING + '[ladder]\nstage = "shadow"\n'
LIVE = OBSERVING + '[ladder]\nstage = "full"\n'
HASTE = """\
[Unit]
StartLimitIntervalSec=0
[Service]
WatchdogSec=8
RestartSec=1
"""
NO_RESTART = "[Service]\nRestart=no\n"
DROP_INS = "/etc/systemd/system/rltuned.service.d"
TOML = "/etc/rltuned/rltuned.toml"
PRIVATE = "nobodys-business"

pytestmark = pytest.mark.timeout(3000)


def active(machine: Machine) -> bool:
    return machine.run("systemctl is-active rltuned").text.strip() == "active"


def main_pid(machine: Machine) -> int:
    return int(machine.do("systemctl show -P MainPID rltuned"))


def journal_since(machine: Machine, mark: str) -> str:
    return machine.do(f"journalctl -u rltuned -o cat --no-pager --after-cursor='{mark}'")


def mark(machine: Machine) -> str:
    shown = machine.do("journalctl -n 1 --show-cursor --no-pager -o cat")
    return shown.split("-- cursor: ")[1].strip()


def wait_for_changes(machine: Machine, before: dict[int, int]) -> None:
    machine.until(lambda: priorities(machine) != before, 30, "no priority was changed")


def test_the_package_installs_without_network(machine: Machine, package: Path) -> None:
    machine.copy(package, "/srv/rltuned.deb")
    machine.do("dpkg -i /srv/rltuned.deb", timeout_s=400)
    assert machine.do("rltuned --version").startswith("rltuned ")
    assert machine.run("rltuned models list").code == 0
    assert not active(machine), "a fresh package must not start by itself"
    assert not (machine.root / TOML.lstrip("/")).exists(), "the settings are the administrator's"


def test_the_rights_are_given_and_check_finds_nothing_wrong(machine: Machine) -> None:
    lacking = machine.run("rltuned check", user="rltuned")
    assert re.search(r"^(warn|FAIL) +rights", lacking.text, re.MULTILINE), lacking.text
    machine.do("sacctmgr -i add user rltuned account=root adminlevel=operator")
    machine.do("scontrol reconfigure")
    found = machine.run("rltuned check", user="rltuned")
    assert "FAIL" not in found.text, found.text
    assert (found.code, "Operator" in found.text) == (0, True)


def test_first_start_only_watches(machine: Machine) -> None:
    for hours in (9, 3, 6):
        submit(machine, "alice", "--gres=gpu:4", f"--time={hours}:00:00")
    machine.until(lambda: len(priorities(machine)) == 2, 30, "one job should run, two wait")
    before = priorities(machine)
    machine.write(TOML, OBSERVING)
    machine.do("systemctl enable --now rltuned")
    machine.until(
        lambda: machine.run("curl -fsS localhost:9841/readyz").code == 0, 30, "it is not ready"
    )
    machine.write(TOML, SHADOWING)
    machine.do("systemctl reload rltuned")
    machine.until(
        lambda: "proposal" in machine.do("journalctl -u rltuned -o cat --no-pager"),
        30,
        "nothing was proposed",
    )
    assert priorities(machine) == before
    assert machine.do("systemctl show -P NotifyAccess,Type rltuned").split() == ["notify", "main"]


def test_reload_goes_live_and_a_bad_file_does_not(machine: Machine) -> None:
    before = priorities(machine)
    pid = main_pid(machine)
    machine.write(TOML, "[daemon]\ninterval_s = 'often'\n")
    machine.do("systemctl reload rltuned")
    machine.until(
        lambda: machine.run("curl -fsS localhost:9841/readyz").code != 0, 15, "readyz stays well"
    )
    assert priorities(machine) == before
    machine.write(TOML, LIVE)
    machine.do("systemctl reload rltuned")
    wait_for_changes(machine, before)
    shorter, longer = sorted(before)[1], sorted(before)[0]
    assert {shorter, longer} == set(before)
    assert main_pid(machine) == pid


def test_prometheus_of_debian_sees_it(machine: Machine) -> None:
    machine.write(
        "/etc/prometheus/prometheus.yml",
        "scrape_configs:\n- job_name: rltuned\n  scrape_interval: 1s\n"
        "  static_configs: [{targets: ['localhost:9841']}]\n",
    )
    machine.do("systemctl restart prometheus")

    def up() -> bool:
        asked = machine.run(
            "curl -fsS 'localhost:9090/api/v1/query?query=up%7Bjob=%22rltuned%22%7D'"
        )
        found = json.loads(asked.text)["data"]["result"] if asked.code == 0 else []
        return [row["value"][1] for row in found] == ["1"]

    machine.until(up, 30, "Prometheus does not see the daemon")


def test_stop_gives_everything_back_and_start_takes_it_again(machine: Machine) -> None:
    held = sprio(machine)
    machine.do("systemctl stop rltuned", timeout_s=120)
    own = priorities(machine)
    assert sprio(machine) != held
    machine.do("systemctl start rltuned")
    wait_for_changes(machine, own)


def test_journald_has_the_priorities_and_nothing_that_a_user_wrote(machine: Machine) -> None:
    since = mark(machine)
    submit(
        machine, "alice", "--gres=gpu:4", "--time=1:00:00", f"-J{PRIVATE}", f"--comment={PRIVATE}"
    )
    for text, event in (
        ("[daemon]\ninterval_s = 'often'\n", "reload_failed"),
        (SHADOWING, "proposal"),
        (LIVE, "loaded"),
    ):
        machine.write(TOML, text)
        here = mark(machine)
        machine.do("systemctl reload rltuned")
        machine.until(lambda at=here, e=event: e in journal_since(machine, at), 30, f"no {event}")  # type: ignore[misc]
    machine.do("systemctl stop slurmctld")
    try:
        machine.until(
            lambda: "cycle_skipped" in journal_since(machine, since), 120, "no cycle was skipped"
        )
    finally:
        machine.do("systemctl start slurmctld")
    back = mark(machine)
    machine.until(
        lambda: re.search(r"\] cycle ", journal_since(machine, back)) is not None,
        120,
        "it does not go on",
    )
    rows = [
        json.loads(line)
        for line in machine.do(
            f"journalctl -u rltuned -o json --no-pager --after-cursor='{since}'"
        ).splitlines()
    ]
    found: dict[str, set[str]] = {}
    for row in rows:
        out = re.search(r"\[\w+ *\] (\w+)", str(row["MESSAGE"]))
        if out is not None:
            found.setdefault(out[1], set()).add(row["PRIORITY"])
    expected = {"reload_failed": "3", "cycle_skipped": "4", "loaded": "6", "proposal": "6"}
    assert {event: found.get(event) for event in expected} == {
        event: {priority} for event, priority in expected.items()
    }
    assert "6" in found["cycle"]
    assert not any(str(row["MESSAGE"]).startswith("<") for row in rows)
    text = " ".join(str(row["MESSAGE"]) for row in rows)
    assert PRIVATE not in text
    assert "alice" not in text
    only_err = machine.do(
        # --after-cursor leaves out the first match where the cursor's own entry is none
        f"journalctl -u rltuned -p err -o cat --no-pager --cursor='{since}'"
    )
    assert "reload_failed" in only_err
    assert "cycle_skipped" not in only_err


def test_the_watchdog_ends_a_hung_daemon_and_it_recovers(machine: Machine) -> None:
    machine.write(f"{DROP_INS}/haste.conf", HASTE)
    machine.do("systemctl daemon-reload && systemctl restart rltuned", timeout_s=120)
    since, pid = mark(machine), main_pid(machine)
    machine.do(f"kill -STOP {pid}")
    machine.until(
        lambda: active(machine) and main_pid(machine) not in {0, pid}, 60, "it stayed hung"
    )
    assert "watchdog" in machine.do(
        f"journalctl --no-pager -o cat --after-cursor='{since}' _PID=1 + UNIT=rltuned.service"
    )


def test_a_crash_leaves_no_number_of_ours(machine: Machine) -> None:
    machine.do("systemctl stop rltuned", timeout_s=120)
    untouched = priorities(machine)
    machine.write(f"{DROP_INS}/no-restart.conf", NO_RESTART)
    machine.do("systemctl daemon-reload && systemctl start rltuned")
    wait_for_changes(machine, untouched)
    machine.do(f"kill -KILL {main_pid(machine)}")
    machine.until(lambda: not active(machine), 30, "it did not die")
    machine.until(lambda: not written_to(machine), 60, "a job kept our number")
    machine.do(f"rm {DROP_INS}/no-restart.conf; systemctl daemon-reload")
    machine.do("systemctl reset-failed rltuned; systemctl start rltuned")


def test_an_upgrade_keeps_settings_and_state(
    machine: Machine, package: Path, tmp_path: Path
) -> None:
    def cycles() -> int:
        query = "sqlite3 -readonly /var/lib/rltuned/journal.sqlite 'select count(*) from cycles'"
        return int(machine.do(query))

    newer = tmp_path / "newer.deb"
    tree = tmp_path / "tree"
    subprocess.run(["dpkg-deb", "-R", str(package), str(tree)], check=True, timeout=120)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"^(Version: .*)-1$", r"\1-2", control.read_text(), flags=re.M))
    for example in tree.rglob("rltuned.toml"):  # a release with a key more
        example.write_text(example.read_text() + "# a key more\n")
    subprocess.run(
        ["dpkg-deb", "-Zgzip", "-z0", "-b", str(tree), str(newer)], check=True, timeout=300
    )
    shutil.rmtree(tree)
    machine.copy(newer, "/srv/newer.deb")
    before, pid = cycles(), main_pid(machine)
    machine.do("dpkg -i /srv/newer.deb", timeout_s=400)
    assert machine.do("dpkg-query -W -f '${Version}' rltuned").endswith("-2")
    assert (machine.root / TOML.lstrip("/")).read_text() == LIVE
    machine.until(lambda: active(machine), 30, "it does not run after the upgrade")
    assert main_pid(machine) != pid
    assert cycles() >= before


def test_it_comes_back_with_the_machine(machine: Machine) -> None:
    machine.power_off()
    machine.boot()
    machine.until(lambda: active(machine), 60, "it did not come up with the machine")
    machine.until(
        lambda: machine.run("curl -fsS localhost:9841/readyz").code == 0, 90, "it is not ready"
    )


def test_several_clusters_by_instances(machine: Machine) -> None:
    machine.write(
        "/etc/rltuned/second.toml",
        OBSERVING.replace("[daemon]\n", '[daemon]\nstate_dir = "/var/lib/rltuned/second"\n'
                         'pause_file = "/run/rltuned/second/PAUSE"\n')
        + '[http]\nport = 9842\n[slurm]\nconf = "/etc/slurm/slurm.conf"\n',
    )  # fmt: skip
    machine.do("systemctl start rltuned@second")
    machine.until(
        lambda: machine.run("curl -fsS localhost:9842/readyz").code == 0, 60, "no second daemon"
    )
    machine.do("systemctl stop rltuned@second", timeout_s=120)
    assert (machine.root / "var/lib/rltuned/second/journal.sqlite").exists()


def test_a_night_of_tune_says_when_there_is_too_little(
    machine: Machine, training_package: Path
) -> None:
    machine.copy(training_package, "/srv/rltuned-train.deb")
    machine.do("apt-get install -y -qq /srv/rltuned-train.deb", timeout_s=600)
    machine.do("systemctl start rltuned-tune.timer")
    assert "rltuned-tune" in machine.do("systemctl list-timers --no-pager")
    machine.do("systemctl start rltuned-tune.service", timeout_s=300)  # exit code 3 is no failure
    out = machine.do("journalctl -u rltuned-tune -o cat --no-pager")
    assert "nothing tuned: " in out
    assert "current" not in machine.do("ls /var/lib/rltuned/models").split()
    verdict = machine.do("cat /var/lib/rltuned/models/tune.json")
    assert '"verdict": "nothing"' in verdict


def test_removal_leaves_the_queue_untouched_and_purge_nothing(machine: Machine) -> None:
    machine.do("apt-get remove -y -qq rltuned", timeout_s=200)
    assert not written_to(machine)
    assert (machine.root / TOML.lstrip("/")).exists()
    assert (machine.root / "var/lib/rltuned/journal.sqlite").exists()
    machine.do("apt-get purge -y -qq rltuned", timeout_s=200)
    left = machine.do(
        "find / -xdev -path /proc -prune -o -path /sys -prune -o -path /srv -prune"
        " -o -path /var/lib/dpkg -prune -o -path /var/log -prune"
        f" -o -path {DROP_INS} -prune -o -name '*rltuned*' -print"
    ).split()
    assert left == []
