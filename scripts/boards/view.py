"""One panel, said shortly, and how panels become a Grafana dashboard.

Built with Grafana's published types (grafana-foundation-sdk), which mypy checks. In expressions
`<C>` stands for the matcher of the chosen clusters, `<P>` for that of clusters and partitions,
`<R>` for the interval of a rate.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.common import (
    ReduceDataOptions,
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus as query_model

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
MAY_BE_EMPTY: Final = "May be empty: "
"""How the description of a panel begins its last sentence when no data is no fault."""
_CLUSTER: Final = 'cluster=~"$cluster"'
_PARTITION: Final = 'cluster=~"$cluster",partition=~"$partition"'
_WORDS: Final = {"<C>": _CLUSTER, "<P>": _PARTITION, "<R>": "$__rate_interval"}
_LAST: Final = ReduceDataOptions().calcs(["lastNotNull"]).values(False)

Kind = Literal["stat", "lines", "stack", "table"]


@dataclass(frozen=True, slots=True)
class View:
    """One panel.

    Attributes:
        title, text: what it shows, and what to make of it.
        unit: Grafana's name of the unit.
        queries: (expression, legend) each.
        kind: one number, lines, stacked lines, or a table of the newest values.
        runbook: heading in docs/runbook.md that says what to do; empty = none.
        empty: when there may be no data without a fault; empty = there always is.
        bad_from: a stat turns red from here on; below it is green.
        good_from: a stat turns green from here on; below it is red.
        words: a stat's text by value.
        width, height: in Grafana's grid of 24 columns.
    """

    title: str
    text: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: Kind = "lines"
    runbook: str = ""
    empty: str = ""
    bad_from: float | None = None
    good_from: float | None = None
    words: tuple[tuple[str, str], ...] = ()
    width: int = 8
    height: int = 7


@dataclass(frozen=True, slots=True)
class Row:
    """A heading above the panels that follow."""

    title: str


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    name: str
    title: str
    text: str
    parts: tuple[View | Row, ...]


def dashboard(board: Board) -> model.Dashboard:
    """The dashboard as Grafana wants it."""
    made = (
        build.Dashboard(f"rltuned / {board.title}")
        .uid(f"rltuned-{board.name}")
        .description(board.text)
        .tags(["rltuned", "slurm"])
        .readonly()
        .refresh("1m")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(_others())
    )
    for variable in _variables():
        made = made.with_variable(variable)
    for number, part in enumerate(board.parts, start=1):
        if isinstance(part, Row):
            made = made.with_row(build.Row(part.title).id(number))
        else:
            made = made.with_panel(_panel(part, number))
    return made.build()


def _others() -> build.DashboardLink:
    return (
        build.DashboardLink("rltuned")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags(["rltuned"])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def _variables() -> "list[Any]":
    return [
        build.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _choice("cluster", "Cluster", "label_values(rltuned_build_info, cluster)"),
        _choice(
            "partition",
            "Partition",
            f"label_values(rltuned_breaker_open{{{_CLUSTER}}}, partition)",
        ),
        build.TextBoxVariable("docs")
        .label("Where the runbook is")
        .default_value("/public/rltuned")
        .hide(model.VariableHide.HIDE_VARIABLE),
    ]


def _choice(name: str, label: str, query: str) -> build.QueryVariable:
    everything = model.VariableOption(text="All", value="$__all", selected=True)
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": query, "refId": name})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")  # also what has no such label: one cluster, no relabelling
        .current(everything)
    )


def _panel(view: View, number: int) -> Any:
    made: Any = _of_kind(view)
    made = (
        made.id(number)
        .title(view.title)
        .description(_description(view))
        .datasource(SOURCE)
        .unit(view.unit)
        .height(view.height)
        .span(view.width)
    )
    for letter, (expression, legend) in zip("ABCDEFGH", view.queries, strict=False):
        made = made.with_target(_target(view, letter, expression, legend))
    if view.runbook:
        made = made.links([_runbook(view.runbook)])
    return made


def _description(view: View) -> str:
    return f"{view.text} {MAY_BE_EMPTY}{view.empty}" if view.empty else view.text


def _runbook(heading: str) -> build.DashboardLink:
    return (
        build.DashboardLink("Runbook")
        .type(model.DashboardLinkType.LINK)
        .url(f"${{docs}}/runbook.md#{heading.lower().replace(' ', '-')}")
        .target_blank(True)
    )


def _target(view: View, letter: str, expression: str, legend: str) -> prometheus.Dataquery:
    text = expression
    for short, long in _WORDS.items():
        text = text.replace(short, long)
    made = prometheus.Dataquery().expr(text).legend_format(legend).ref_id(letter)
    if view.kind == "table":
        return made.instant().format(query_model.PromQueryFormat.TABLE)
    return made.instant() if view.kind == "stat" else made.range()


def _of_kind(view: View) -> Any:
    match view.kind:
        case "stat":
            return _stat(view)
        case "table":
            return table.Panel().align(common.FieldTextAlignment.AUTO).inspect(False)
        case "lines" | "stack":
            return _lines(stacked=view.kind == "stack")


def _lines(*, stacked: bool) -> timeseries.Panel:
    legend = (
        VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    made = (
        timeseries.Panel()
        .legend(legend)
        .tooltip(VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        .line_width(1)
        .fill_opacity(25 if stacked else 5)
        .axis_soft_min(0)
    )
    if stacked:
        made = made.stacking(StackingConfig().mode(common.StackingMode.NORMAL))
    return made


def _stat(view: View) -> stat.Panel:
    made = (
        stat.Panel()
        .reduce_options(_LAST)
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
    )
    if (steps := _steps(view)) is not None:
        thresholds = build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
        made = made.thresholds(thresholds)
    if view.words:
        options = {
            value: model.ValueMappingResult(text=word, index=index)
            for index, (value, word) in enumerate(view.words)
        }
        made = made.mappings([model.ValueMap(options=options)])
    return made


def _steps(view: View) -> list[model.Threshold] | None:
    if view.bad_from is not None:
        return [
            model.Threshold(color="green"),
            model.Threshold(value=view.bad_from, color="red"),
        ]
    if view.good_from is not None:
        return [
            model.Threshold(color="red"),
            model.Threshold(value=view.good_from, color="green"),
        ]
    return None
