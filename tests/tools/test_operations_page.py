"""The pages name every log event, mode, fate and skip reason, and no other event."""

import re
from pathlib import Path
from typing import Any

from rltuned.cli.explain import explained
from rltuned.cli.flags import BackendChoice, settings_of
from rltuned.cli.plan import look
from rltuned.core.decide import Knobs, decide
from rltuned.daemon.report import Skip
from rltuned.daemon.restore import Fate
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import Ownership
from rltuned.journal.cycles import JobChange
from tests.builders import job, looked_at, node, running, snapshot, sure
from tests.fakes import ConstantOrder

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("operations.md", "interfaces.md")
PAGE = "\n".join((ROOT / "docs" / name).read_text() for name in NAMES)


def events_in_code() -> set[str]:
    """Words that a logger of daemon/ or cli/run.py is called with."""
    files = [*(ROOT / "rltuned" / "daemon").rglob("*.py"), ROOT / "rltuned" / "cli" / "run.py"]
    call = re.compile(r"(?:log\.(?:info|warning|error)\)?|\bline)\(\s*\"([a-z_]+)\"")
    return {name for file in files for name in call.findall(file.read_text())}


def test_every_event_is_documented_and_every_documented_one_exists() -> None:
    section = PAGE.split("## Log lines")[1].split("\n## ")[0]
    documented = set(re.findall(r"^- `([a-z_]+)`", section, re.MULTILINE))
    assert documented == events_in_code()


def test_words_are_explained() -> None:
    for word in (*HealthState, *Skip):
        assert f"`{word.value}`" in PAGE
    table = PAGE.split("## Restore")[1].split("\n## ")[0]
    assert all(fate.value in table for fate in Fate)


def keys_of(document: dict[str, Any]) -> set[str]:
    inner = [v for v in document.values() if isinstance(v, dict)]
    inner += [
        v[0] for v in document.values() if isinstance(v, list) and v and isinstance(v[0], dict)
    ]
    named = set(document)
    return named.union(*(keys_of(part) for part in inner)) if inner else named


def test_every_key_of_plan_and_explain_is_documented() -> None:
    owned = Ownership("priority", 5)
    seen = snapshot(job(1, owned=owned, priority=5), job(2), runs=[running(9)], nodes=[node("p1")])
    decision = decide(seen, ConstantOrder(), Knobs())
    shown = looked_at(decision)
    plan, reply, runs = shown.plan(), shown.explain("1"), shown.explain("9")
    built_in = look(settings_of(None, ("policy.name", "sjf", "")), BackendChoice.SIM, 0)
    closely = sure(explained(built_in, str(built_in.decision.entries[0].job.job_id)))
    keys = keys_of(plan) | keys_of(sure(reply) | closely) | keys_of(sure(runs))
    keys |= {*JobChange._fields, "changes"}
    section = PAGE.split("## JSON for programs")[1].split("\n## ")[0]
    assert keys <= set(re.findall(r"`([a-z_]+)`", section))
