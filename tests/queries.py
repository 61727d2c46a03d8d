"""The queries of dashboards and alerts, as they lie in deploy/."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
BOARDS = tuple(sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")))
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
RECORDING = DEPLOY / "prometheus" / "recording.yml"
METRIC = re.compile(r"\brltuned_[a-z0-9_]+")
_VALUES = re.compile(r"label_values\((.*), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    board: str
    panel: str
    expression: str
    instant: bool
    may_be_empty: bool


def board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def panels(path: Path) -> list[dict[str, Any]]:
    """Those with data; not the headings and texts."""
    return [panel for panel in board(path)["panels"] if panel["type"] not in {"row", "text"}]


def queries() -> Iterator[Query]:
    for path in BOARDS:
        for panel in panels(path):
            for target in panel["targets"]:
                yield Query(
                    board=path.stem,
                    panel=panel["title"],
                    expression=target["expr"],
                    instant=target.get("instant", False),
                    may_be_empty="May be empty: " in panel["description"],
                )


def variables(path: Path) -> dict[str, tuple[str, str]]:
    """Variable -> (series, label) of those that ask Prometheus."""
    found = {}
    for variable in board(path)["templating"]["list"]:
        if variable["type"] == "query":
            match = _VALUES.fullmatch(variable["query"]["query"])
            assert match is not None, variable
            found[variable["name"]] = (match[1], match[2])
    return found


def alerts() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", ALERTS.read_text(), re.MULTILINE)


def metrics_of(text: str) -> set[str]:
    """Names of our metrics in a text; what a recording rule makes is no metric."""
    return set(METRIC.findall(re.sub(r"\b[a-z_]+:rltuned_\w+:\w+", "", text)))
