"""The daemon as a real process on the built-in cluster: signals, reload, systemd, exit codes."""

import signal
import socket
from pathlib import Path

import pytest

from tests.configs import settings_file
from tests.e2e.process import Daemon
from tests.programs import rltuned

SIM = ("--backend", "sim")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return settings_file(tmp_path, "[http]\nport = 0\n")


def test_it_serves_while_it_runs_and_ends_on_sigterm(tmp_path: Path, config: Path) -> None:
    with Daemon(tmp_path, *SIM, "--speed", "600", "--config", str(config)) as daemon:
        daemon.wait_for_log("proposed=", times=3)
        assert daemon.metric("rltuned_cycles_total") >= 3
        assert daemon.metric('rltuned_mode{mode="dry_run"}') == 1
        assert daemon.metric('rltuned_changes_planned{kind="site_factor"}') > 0
        assert daemon.metric('rltuned_changes_total{kind="priority",result="applied"}') == 0
        assert daemon.get("/healthz") == "alive\n"
        assert '"ready": true' in daemon.get("/readyz")
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
        assert "stopped" in daemon.log()
        assert "Traceback" not in daemon.log()


def test_sighup_takes_over_a_good_file_and_refuses_a_bad_one(tmp_path: Path, config: Path) -> None:
    with Daemon(tmp_path, *SIM, "--speed", "60", "--config", str(config)) as daemon:
        daemon.wait_for_log("proposed=")
        config.write_text("[http]\nport = 0\n[policy]\nname = 'sjf'\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("policy=sjf")
        config.write_text("[http]\nport = 0\n[policy]\nname = 'sjff'\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("reload_failed")
        assert f"{config}:4: policy.name: no policy 'sjff'" in daemon.log()
        assert daemon.metric("rltuned_config_last_reload_successful") == 0
        assert (
            daemon.metric(
                'rltuned_policy_info{digest="",in_place_of="",name="sjf",schema="",trust=""}'
            )
            == 1
        )
        config.write_text("[http]\nport = 0\n[policy]\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("loaded", times=3)
        assert daemon.metric("rltuned_config_last_reload_successful") == 1
        daemon.signal(signal.SIGINT)
        assert daemon.ends() == 0


def test_systemd_hears_of_everything(tmp_path: Path, config: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        received: list[str] = []

        def until(word: str) -> str:
            while True:
                received.append(systemd.recv(4096).decode())
                if word in received[-1]:
                    return received[-1]

        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        args = (*SIM, "--speed", "1", "--config", str(config))
        with Daemon(tmp_path, *args, environ=environ) as daemon:
            assert "; policy model:rltune, trust 0.7, dry run" in until("READY=1")
            assert "proposed" in until("; cycle 1")
            for _ in range(3):  # the first cycle is over, the next is a minute away
                until("WATCHDOG=1")
            daemon.signal(signal.SIGHUP)
            assert "MONOTONIC_USEC=" in until("RELOADING=1")
            until("READY=1")
            daemon.signal(signal.SIGTERM)
            until("STOPPING=1")
            assert daemon.ends() == 0


def test_the_environment_steers_no_metric(tmp_path: Path, config: Path) -> None:
    """prometheus_client would end at the start, or put files there."""
    names = ("MULTIPROC_DIR", "DISABLE_CREATED_SERIES", "LEGACY_NAME_VALIDATION")
    environ = {f"PROMETHEUS_{name}": str(tmp_path / "none") for name in names}
    environ["prometheus_multiproc_dir"] = str(tmp_path)
    before = set(tmp_path.iterdir())
    with Daemon(tmp_path, *SIM, "--config", str(config), environ=environ) as daemon:
        daemon.wait_for_log("proposed=")
        assert daemon.metric("rltuned_config_last_reload_successful") == 1
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    assert not [p for p in set(tmp_path.iterdir()) - before if p.suffix == ".db"]


def test_exit_codes_of_a_bad_start(config: Path) -> None:
    config.write_text("[ladder]\nstagge = 'full'\n")
    done = rltuned("run", *SIM, "--once", config=config)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"rltuned: {config}:2: ladder.stagge: unknown key; did you mean stage?\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = rltuned("run", *SIM, "--once", "--port", port)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert rltuned("run", *SIM, "--once", "--policy", "model:none").returncode == 2


def test_up_and_down_the_ladder_by_reload(tmp_path: Path, config: Path) -> None:
    def stage(name: str) -> None:
        config.write_text(
            f'[http]\nport = 0\n[ladder]\nstage = "{name}"\ncanary_block_s = 600\n'
            "[daemon]\ninterval_s = 120\n"
        )

    stage("shadow")
    with Daemon(tmp_path, *SIM, "--speed", "1200", "--config", str(config)) as daemon:
        daemon.wait_for_log("rank_before=")
        assert daemon.metric("rltuned_jobs_owned") == 0
        stage("canary")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("stage=canary")
        for delays in ("on", "off"):
            series = f'rltuned_job_wait_seconds_count{{delays="{delays}",partition="gpu"}}'
            daemon.wait_for(lambda s=series: daemon.metric(s) > 0, f"a job of an {delays} block")  # type: ignore[misc]
        daemon.wait_for(lambda: daemon.metric("rltuned_jobs_owned") > 0, "an on block")
        left = 'rltuned_jobs_refused{reason="off_block"}'
        daemon.wait_for(lambda: daemon.metric(left) > 0, "an off block")
        stage("observe")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("stage=observe")
        daemon.wait_for(lambda: daemon.metric("rltuned_jobs_owned") == 0, "all is restored")
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
        assert "Traceback" not in daemon.log()
