"""Dashboards, rules and runbook: whole, and naming only what there is."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, generate_latest

from rltuned.daemon.metrics import Metrics
from tests import needs
from tests.builders import sure
from tests.programs import ran
from tests.queries import (
    ALERTS,
    BOARDS,
    DEPLOY,
    RECORDING,
    alerts,
    board,
    metrics_of,
    panels,
    queries,
    variables,
)  # fmt: skip
from tests.schema import misfits

ROOT = DEPLOY.parent
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
TESTS = ROOT / "tests" / "data" / "prometheus" / "alerts.test.yml"
EACH = pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)


def headings() -> set[str]:
    return {line.lower().replace(" ", "-") for line in re.findall(r"^## (.*)$", RUNBOOK, re.M)}


def shown() -> set[str]:
    """Names of all series that /metrics has."""
    metrics = Metrics(CollectorRegistry())
    metrics.loaded("fcfs", classes=["qos=any"])
    metrics.show("any")
    lines = generate_latest(metrics.registry).decode().splitlines()
    # a gauge whose labels are the site's own has no series before the first cycle
    gauges = {line.split()[2] for line in lines if line.startswith("# TYPE") and "gauge" in line}
    return gauges | {line.partition("{")[0].partition(" ")[0] for line in lines if line[0] != "#"}


@EACH
def test_a_dashboard_is_of_the_published_types(path: Path) -> None:
    register_default_plugins()
    found = Dashboard.from_json(board(path))
    again = json.loads(json.dumps(found, cls=JSONEncoder))
    assert again == board(path), "a key that Grafana's types do not know is lost on the way"
    assert list(misfits(found)) == []
    assert found.uid == f"rltuned-{path.stem}"
    names = [variable.name for variable in sure(found.templating.list_val)]
    assert names == ["datasource", "cluster", "partition", "docs"]
    assert set(variables(path)) == {"cluster", "partition"}


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda b: b.update(refresh=60), "dashboard.refresh: 60 is no str"),
        (lambda b: b.update(graphTooltip=7), "dashboard.graph_tooltip: 7 is no"),
        (lambda b: b["tags"].append(3), "dashboard.tags[2]: 3 is no str"),
        (lambda b: b["panels"][1].update(title=[]), "panels[1].title: [] is no str"),
        (lambda b: b["panels"][1]["gridPos"].update(w="8"), "grid_pos.w: '8' is no int"),
        (lambda b: b["panels"][1]["targets"][0].update(instant="yes"), "instant: 'yes' is no bool"),
        (
            lambda b: b["panels"][1]["options"].update(graphMode="wide"),
            "options.graph_mode: 'wide' is no BigValueGraphMode",
        ),
    ],
)  # fmt: skip
def test_a_value_of_another_type_would_be_found(spoil: Callable[[Any], Any], where: str) -> None:
    register_default_plugins()
    spoilt = board(next(path for path in BOARDS if path.stem == "overview"))
    spoil(spoilt)
    assert any(where in line for line in misfits(Dashboard.from_json(spoilt)))


@EACH
def test_every_panel_says_what_it_shows(path: Path) -> None:
    ids = [panel["id"] for panel in board(path)["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels(path):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@EACH
def test_events_are_marked_on_the_time_axis(path: Path) -> None:
    notes = board(path)["annotations"]["list"]
    assert {note["name"] for note in notes} == {"breaker opens", "model changes"}
    for note in notes:
        assert metrics_of(note["expr"]) <= shown()
        assert '$cluster"' in note["expr"]


def test_the_board_of_the_effect_says_what_a_block_is_and_opens_on_a_month() -> None:
    found = board(next(path for path in BOARDS if path.stem == "effect"))
    assert found["time"]["from"] == "now-30d"
    (text,) = [panel for panel in found["panels"] if panel["type"] == "text"]
    assert "off* block Slurm's own order holds" in text["options"]["content"]


@EACH
def test_panels_lie_beside_each_other(path: Path) -> None:
    places = sorted(
        (y, x)
        for panel in board(path)["panels"]
        for pos in (panel["gridPos"],)
        for x in range(pos.get("x", 0), pos.get("x", 0) + pos["w"])
        for y in range(pos.get("y", 0), pos.get("y", 0) + pos["h"])
    )
    assert all(first != second for first, second in pairwise(places))
    assert max(x for _, x in places) < 24


@EACH
def test_links_lead_into_the_runbook(path: Path) -> None:
    links = {link["url"] for panel in panels(path) for link in panel.get("links", ())}
    assert links
    for link in links:
        page, _, heading = link.partition("#")
        assert page == "${docs}/runbook.md"
        assert heading in headings()


def test_every_query_asks_for_what_there_is() -> None:
    known = shown()
    for query in queries():
        assert metrics_of(query.expression) <= known, query
        assert '$cluster"' in query.expression, query
    for path in (ALERTS, RECORDING):
        assert metrics_of(path.read_text()) <= known, path
    for path in BOARDS:
        for series, _ in variables(path).values():
            assert metrics_of(series) <= known


def test_every_alert_has_a_test_and_a_runbook_section() -> None:
    named = alerts()
    assert len(named) == len(set(named)) > 0
    assert re.findall(r"^  - name: (\w+)$", TESTS.read_text(), re.M) == named
    assert re.findall(r"^## (Rltuned\w+)$", RUNBOOK, re.M) == named
    links = re.findall(
        r"runbook_url: file:///usr/share/doc/rltuned/runbook.md#(\w+)$", ALERTS.read_text(), re.M
    )
    assert links == [name.lower() for name in named]


@pytest.mark.prometheus
@pytest.mark.parametrize(
    "words",
    [
        ("promtool", "check", "rules", str(RECORDING), str(ALERTS)),
        ("promtool", "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")),
        ("promtool", "test", "rules", str(TESTS)),
        ("amtool", "check-config", str(DEPLOY / "prometheus" / "alertmanager.yml")),
    ],
    ids=lambda words: " ".join(words[:3]).replace("/", "_"),
)
def test_their_own_programs_find_nothing_wrong(words: tuple[str, ...]) -> None:
    needs.program(words[0])
    ran(*words)
