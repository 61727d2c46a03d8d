"""Placement: the integer program and what it decided."""

from typing import Final

from scripts.boards.view import Board, Row, View

BOARD: Final = Board(
    "placement",
    "Placement",
    'Placement of the first jobs together: placement = "milp". Elsewhere these panels show zeros.',
    (
        Row("Answers"),
        View(
            "Joint placements", "By how they came about.", "cpm",
            (
                (
                    "60 * sum by (how) (rate(rltuned_joint_placements_total{<C>}[<R>]))",
                    "{{how}}",
                ),
            ),
            kind="stack", runbook="RltunedPlacementFallsBack",
        ),
        View(
            "Fell back", "Share of the placements for which the greedy answer stands.",
            "percentunit",
            (
                (
                    ('sum(increase(rltuned_joint_placements_total{how="fell_back",<C>}[$__range]))'
                    " / (sum(increase(rltuned_joint_placements_total{<C>}[$__range])) > 0)"),
                    "fell back",
                ),
            ),
            kind="stat", runbook="RltunedPlacementFallsBack", bad_from=0.5,
            empty="no joint placement was made.",
        ),
        View(
            "Jobs placed", "At the head of the new order, that would fit on free nodes now.",
            "short", (("sum(rltuned_jobs_placed{<C>})", "placed"),),
        ),
        Row("The program"),
        View(
            "Time of deciding", "Selecting, scoring, placing and planning, mean of a cycle.", "s",
            (
                (
                    ('sum(rate(rltuned_cycle_duration_seconds_sum{stage="decide",<C>}[<R>]))'
                    ' / (sum(rate(rltuned_cycle_duration_seconds_count{stage="decide",<C>}'
                    "[<R>])) > 0)"),
                    "decide",
                ),
            ),
            runbook="RltunedCycleSlow",
            empty="no cycle reached a decision (stage observe, or all were skipped).",
        ),
        View(
            "Solver", "Wall time of the solver, median and 95 %.", "s",
            (
                (
                    ("histogram_quantile(0.5, sum by (le)"
                    " (rate(rltuned_milp_solve_duration_seconds_bucket{<C>}[<R>])))"),
                    "median",
                ),
                (
                    ("histogram_quantile(0.95, sum by (le)"
                    " (rate(rltuned_milp_solve_duration_seconds_bucket{<C>}[<R>])))"),
                    "95 %",
                ),
            ),
            runbook="RltunedPlacementFallsBack", empty="nothing had to be solved.",
        ),
        View(
            "Ways", "Jobs that the last joint placement looked at, by ways to start now.", "short",
            (("sum by (ways) (rltuned_placement_jobs{<C>})", "{{ways}}"),), kind="stack",
        ),
        Row("What reaches Slurm"),
        View(
            "OverSubscribe", "Changes sent, by kind and result.", "cpm",
            (
                (
                    ("60 * sum by (kind, result) (rate(rltuned_changes_total{<C>,"
                    'kind="oversubscribe"}[<R>]))'),
                    "{{kind}} {{result}}",
                ),
            ),
            kind="stack", width=12,
        ),
        View(
            "Verdicts", "Jobs that the last joint placement looked at, by what it decided.",
            "short", (("sum by (verdict) (rltuned_placement_verdicts{<C>})", "{{verdict}}"),),
            kind="stack", width=12,
        ),
    ),
)  # fmt: skip
