"""Commands in this process, against the built-in cluster or none at all."""

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rltuned import __version__
from rltuned.cli import COMMANDS, PANELS
from rltuned.cli.check import here
from rltuned.cli.facts import Check, Status
from rltuned.core.decide import Knobs, decide
from rltuned.core.order import Bound
from rltuned.core.refusals import Refusal
from rltuned.daemon.breaker import Breaker, Cause, change
from rltuned.daemon.words import BOUNDS
from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.units import JobId
from rltuned.errors import JournalError, ModelError
from rltuned.journal.journal import Journal
from rltuned.policies.generations import Generations, TunedOrder
from rltuned.settings import Flag, from_flags
from tests.builders import job, looked_at, running, snapshot, sure
from tests.configs import settings_file
from tests.fakes import ConstantOrder
from tests.switchback_world import switchback_at
from tests.unit.cli.runner import run

SIM = ("--backend", "sim")


def document(*args: str) -> Any:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return settings_file(
        tmp_path, f'[daemon]\nstate_dir = "{tmp_path}"\ninterval_s = 30\n[http]\nport = 0\n'
    )


@pytest.mark.parametrize("asked", ["--version", "version"])
def test_version(asked: str) -> None:
    assert run(asked).stdout.startswith(f"rltuned {__version__} (Python 3.")


def test_help_names_every_command_under_its_heading() -> None:
    text = run("--help").stdout
    assert all(name in text for name in (*COMMANDS, *PANELS))
    assert run("-h").stdout == text
    assert run("plan", "-h").stdout == run("plan", "--help").stdout


def test_wrong_use_is_exit_code_2() -> None:
    assert run("no-such-command").exit_code == 2
    assert run("run", "--once", "--cycles", "2", *SIM).exit_code == 2
    assert run("restore").exit_code == 2
    assert run("restore", "--all", "--job", "3").exit_code == 2


def test_plan_json_has_what_the_contract_says() -> None:
    plan = document("plan", "--json", *SIM, "--policy", "sjf")
    assert plan["policy"] == "sjf"
    counts = plan["counts"]
    assert counts["pending"] == len(plan["jobs"]) > 0
    assert {"running", "nodes", "ranked", "refused", "changes"} <= counts.keys()
    keys = {
        "job_id", "partition", "current_priority", "proposed_priority", "score", "rank_before",
        "rank_now", "rank_wished", "rank_after", "ties", "placement", "reason", "refusal",
    }  # fmt: skip
    assert all(keys <= job.keys() for job in plan["jobs"])
    ranks = [job["rank_after"] for job in plan["jobs"] if job["rank_after"] is not None]
    assert ranks == list(range(1, len(ranks) + 1))


def test_explain_in_json_and_in_words() -> None:
    plan = document("plan", "--json", *SIM)
    job_id = str(plan["jobs"][0]["job_id"])
    reply = document("explain", job_id, "--json", *SIM)
    assert reply["rank_after"] == 1
    assert reply["state"] == "PENDING"
    text = run("explain", job_id, *SIM).stdout
    assert f"Job {job_id} (" in text
    assert "rltuned wants place 1." in text
    assert re.search(r"Place \d+ of \d+ in Slurm's queue", text)
    assert "may be overtaken because of rltuned by jobs that" in text
    assert "by Slurm's own plan: unknown (the built-in cluster makes no plan)" in text
    assert "Changes so far: unknown (there is no journal)" in text


def test_explain_begins_with_the_expected_start_and_plan_has_the_same() -> None:
    """Plays on the spot have the same seed, so both commands say the same."""
    plan = document("plan", "--json", *SIM)
    job = next(one for one in plan["jobs"] if one["expected_start"] and one["line_place"] > 3)
    reply = document("explain", str(job["job_id"]), "--json", *SIM)
    assert reply["line_place"] == job["line_place"] <= reply["line_jobs"]
    of_plan, of_explain = job["expected_start"], reply["expected_start"]
    assert of_plan["low_s"] <= of_plan["median_s"] <= of_plan["high_s"]
    for name, seconds in of_explain.items():
        in_s = of_plan[name] - plan["taken_at"]
        # two looks at a world that is 60 times as fast
        assert seconds - reply["expected_at"] == pytest.approx(in_s, abs=120.0)
    first = run("explain", str(job["job_id"]), *SIM).stdout.splitlines()[0]
    assert re.search(
        r": expected to start .* \(by time limits\); \d+(st|nd|rd|th) of \d+\.$", first
    )
    assert "expected start" in run("plan", *SIM).stdout


def test_what_another_request_would_change_is_asked_of_the_daemon() -> None:
    name = str(document("plan", "--json", *SIM)["jobs"][0]["job_id"])
    done = run("explain", name, "--limit", "10", *SIM)
    assert "is known to the daemon alone" in done.stderr
    assert done.stdout.startswith(f"Job {name} (")
    assert run("explain", name, "--limit", "soon", *SIM).exit_code == 2


def test_explain_says_how_far_off_a_promise_is(tmp_path: Path) -> None:
    path = settings_file(tmp_path, '[[sla]]\npartition = "gpu"\nmax_wait_s = 0.5\n')
    late = ("--config", str(path))
    plan = document("plan", "--json", *SIM, *late)
    first = str(next(j["job_id"] for j in plan["jobs"] if j["partition"] == "gpu"))
    reply = document("explain", first, "--json", *SIM, *late)
    assert reply["sla"]["class"] == "partition=gpu"
    assert reply["sla"]["left_s"] < 0
    assert reply["bounds"] is None
    text = run("explain", first, *SIM, *late).stdout
    assert re.search(r"class partition=gpu is promised a wait of at most \S+: .* over it\.", text)
    assert "delay 0, by the promise to partition=gpu" in text
    assert "is promised" not in run("explain", first, *SIM).stdout


def test_explain_says_that_its_partition_is_in_an_off_block(tmp_path: Path) -> None:
    salt = switchback_at(time.time(), on=False).salt
    path = settings_file(
        tmp_path,
        f'[daemon]\nstate_dir = "{tmp_path}"\n[ladder]\nstage = "canary"\ncanary_salt = "{salt}"\n',
    )
    plan = document("plan", "--json", *SIM, "--config", str(path))
    job_id = next(str(j["job_id"]) for j in plan["jobs"] if j["partition"] == "gpu")
    reply = document("explain", job_id, "--json", *SIM, "--config", str(path))
    assert reply["off_block"]["partition"] == "gpu"
    text = run("explain", job_id, *SIM, "--config", str(path)).stdout
    assert "It is not delayed: partition gpu measures Slurm's own order until 2" in text


def test_explain_finds_arrays_and_running_tasks_by_every_name() -> None:
    array = job(7, address="7_[0-3]", array=ArrayInfo(JobId(7), 4, listed="0-3"))
    task = running(8, array_job_id=JobId(7), array_task=5)
    decision = looked_at(decide(snapshot(array, job(6), runs=[task]), ConstantOrder(), Knobs()))
    for name, address in {"7": "7_[0-3]", "7_2": "7_[0-3]", "8": "7_5", "7_5": "7_5"}.items():
        assert sure(decision.explain(name))["address"] == address


def test_every_refusal_and_bound_has_words() -> None:
    texts = [text for one in Refusal for text in (one.sentence, one.of_several)]
    assert all(texts)
    assert len(set(texts)) == len(texts)
    assert {bound.value for bound in Bound} == set(BOUNDS)


def test_explain_an_unknown_job() -> None:
    result = run("explain", "999999", *SIM)
    assert result.exit_code == 1
    assert "shows no pending or running job 999999" in result.stderr


def test_run_logs_on_stderr(config: Path) -> None:
    result = run("run", *SIM, "--cycles", "2", "--speed", "6000", "--config", str(config))
    assert (result.exit_code, result.stdout) == (0, "")
    assert all(f"summary='cycle {n}: " in result.stderr for n in (1, 2)), result.stderr
    assert "http://127.0.0.1:" in result.stderr
    assert not (config.parent / "journal.sqlite").exists()


def test_run_live_on_the_simulated_cluster_changes_it(config: Path) -> None:
    args = ("--live", "--cycles", "2", "--speed", "6000", "--config", str(config))
    result = run("run", *SIM, *args)
    assert result.exit_code == 0, result.output
    assert "applied=" in result.stderr


def test_json_logs(config: Path) -> None:
    config.write_text(config.read_text() + '[log]\nformat = "json"\n')
    result = run("run", *SIM, "--once", "--config", str(config))
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert result.stdout == ""
    cycle = next(line for line in lines if line["event"] == "cycle")
    proposals = [line for line in lines if line["event"] == "proposal"]
    assert cycle["mode"] == "dry_run"
    assert cycle["proposed"] == len(proposals) > 0
    keys = {"job", "partition", "old", "new", "rank_before", "rank_after", "delay_s", "why"}
    assert all(keys <= line.keys() for line in proposals)


def test_config_show_tells_sources(config: Path) -> None:
    shown = document("config", "show", "--json", "--config", str(config))
    assert shown["daemon.interval_s"] == {"value": 30.0, "source": f"{config}:3"}
    assert shown["ladder.stage"] == {"value": "observe", "source": "default"}
    text = run("config", "show", "--config", str(config)).stdout
    assert f"interval_s = 30.0 {'':<37} # {config}:3".split() == next(
        line.split() for line in text.splitlines() if line.startswith("interval_s")
    )


def test_the_environment_names_the_config(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLTUNED_CONFIG", str(config))
    assert document("config", "show", "--json")["daemon.interval_s"]["value"] == 30.0


def test_check_without_slurm(config: Path) -> None:
    checks = document("check", "--no-slurm", "--json", "--config", str(config))
    named = (
        "settings", "runtime", "trust", "user", "space", "policy", "solver", "journal", "kinds",
        "predictor", "http", "mode", "breakers",
    )  # fmt: skip
    assert {c["name"]: c["status"] for c in checks} == dict.fromkeys(named, "ok")


def test_check_looks_at_the_machine(tmp_path: Path) -> None:
    def found(**journal: int) -> dict[str, Check]:
        flags = [Flag("daemon.state_dir", tmp_path, "a test")]
        flags += [Flag(f"journal.{key}", value, "a test") for key, value in journal.items()]
        of_machine = ("runtime", "user", "space")
        checks = here(from_flags(tuple(flags)))
        return {c.name: c for c in checks if c.name in of_machine}

    assert {c.status for c in found().values()} == {Status.OK}
    assert "numpy 2" in found()["runtime"].detail
    assert found(max_mib=1_048_576)["space"].status is Status.WARN
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
        assert found()["user"].status is Status.WARN
        assert found()["user"].remedy == "runuser -u nobody -- rltuned check"
        os.chown(tmp_path, 0, 0)
    shutil.rmtree(tmp_path)
    assert set(found()) == {"runtime", "user"}, "the journal's check says that there is no folder"


def test_check_says_what_to_mend(config: Path) -> None:
    config.write_text('[daemon]\nstate_dir = "/no/such/folder"\n[ladder]\nstage = "full"\n')
    result = run("check", "--no-slurm", "--config", str(config))
    assert result.exit_code == 1
    assert "FAIL  journal: /no/such/folder" in result.stdout
    assert "remedy: mkdir -p /no/such/folder && chown -R " in result.stdout
    assert "ok    mode: stage full: it writes, write_mode auto" in result.stdout


def test_models(tmp_path: Path) -> None:
    models = Path(__file__).resolve().parents[3] / "models"
    result = run("models", "list", str(models))
    assert result.exit_code == 0, result.output
    row = next(r for r in document("models", "list", str(models), "--json") if not r["error"])
    bundle = models / row["name"]
    assert row["digest"] in run("models", "verify", str(bundle)).stdout
    assert document("models", "card", str(bundle))["name"] == row["name"]
    with pytest.raises(ModelError):
        run("models", "verify", str(tmp_path / "none"))
    with pytest.raises(ModelError, match="none: No such file"):
        run("models", "list", str(tmp_path / "none"))


def test_restore_with_nothing_to_restore(config: Path) -> None:
    result = run("restore", "--all", "--config", str(config))
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no journal, and what Slurm shows is not known" in result.stderr
    Journal(config.parent).remember("settings", {}, 0.0)  # as a daemon that only watched
    result = run("restore", "--all", "--config", str(config))
    assert (result.exit_code, result.stdout) == (0, "nothing to restore\n")


def test_a_stage_may_be_reported_and_excludes_the_other_switches(config: Path) -> None:
    args = ("--once", "--config", str(config))
    shadow = run("run", *SIM, "--stage", "shadow", *args)
    assert "mode=shadow" in shadow.stderr
    assert "stage=shadow" in shadow.stderr
    assert run("run", *SIM, "--stage", "full", "--dry-run", *args).exit_code == 2
    assert "mode=dry_run" in run("run", *SIM, *args).stderr


def test_breakers_are_shown_and_closed(config: Path) -> None:
    options = ("--config", str(config))
    with pytest.raises(JournalError, match="there is none"):
        run("breaker", "show", *options)
    journal = Journal(config.parent)
    state = {"gpu": Breaker().opened(Cause.ERRORS, "why", 0.0), "long": Breaker(errors=1)}
    change(journal, "c1", lambda _: state, 0.0)
    journal.close()
    shown = run("breaker", "show", *options)
    assert shown.exit_code == 1
    assert shown.stdout.splitlines() == [
        "c1: gpu: open since 1970-01-01T00:00:00+00:00: errors: why",
        "c1: long: closed, 1 cycles of errors in a row",
    ]
    assert "WARN  breakers: open: gpu" in run("check", "--no-slurm", *options).stdout.replace(
        "warn", "WARN"
    )
    assert run("breaker", "reset", "long", *options).exit_code == 1
    assert run("breaker", "reset", *options).stdout == "c1: gpu: closed\n"
    assert run("breaker", "reset", *options).exit_code == 1
    assert run("breaker", "show", *options).exit_code == 0
    (config.parent / "journal.sqlite").unlink()
    (config.parent / "writer.lock").touch()
    for verb in ("show", "reset"):
        with pytest.raises(JournalError, match=r"journal\.sqlite: it is gone"):
            run("breaker", verb, *options)


def test_models_promote_and_roll_back(tmp_path: Path) -> None:
    config = settings_file(
        tmp_path, f'[policy]\nname = "tuned"\n[daemon]\nstate_dir = "{tmp_path}"\n'
    )
    store = Generations(tmp_path)
    made = [
        store.add(TunedOrder(policy=rule, own=0.3, share=0.75, max_delay_s=86_400.0), {})
        for rule in ("delay", "saf")
    ]
    options = ("--config", str(config))
    with pytest.raises(ModelError, match="candidate: there is no such generation"):
        run("models", "promote", *options)
    store.propose(made[0].name, at=0.0)
    assert "is in force: delay, own 0.3, share 0.75" in run("models", "promote", *options).stdout
    run("models", "promote", made[1].name, "--why", "a test", *options)
    rows = json.loads(run("models", "list", "--json", *options).stdout)
    roles = {row["name"]: row["role"] for row in rows if row["name"].startswith("gen-")}
    assert roles == {made[0].name: "previous", made[1].name: "current"}
    assert made[1].digest in run("models", "verify", str(store.folder / "current")).stdout
    checks = json.loads(run("check", "--no-slurm", "--json", *options).stdout)
    elsewhere = Generations(tmp_path / "elsewhere")
    far = elsewhere.add(TunedOrder(policy="saf", own=1.0, share=0.75, max_delay_s=0.0), {})
    elsewhere.propose(far.name, at=0.0)
    with pytest.raises(ModelError, match=r"^model /nope: there is no such generation$"):
        run("models", "adopt", "/nope", *options)
    assert (
        "is the candidate: saf"
        in run("models", "adopt", str(elsewhere.folder / "candidate"), *options).stdout
    )
    assert store.read("candidate").manifest.own == 1.0
    policy = next(c for c in checks if c["name"] == "policy")
    assert policy["detail"].startswith("saf")
    assert made[1].name in policy["detail"]
    assert f"{made[0].name} is in force" in run("models", "rollback", *options).stdout
    assert "no generation is in force" in run("models", "rollback", *options).stdout
    with pytest.raises(ModelError, match="nothing to undo"):
        run("models", "rollback", *options)
