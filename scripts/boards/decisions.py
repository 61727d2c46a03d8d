"""Decisions: how many jobs moved, how far, why, and who was left alone."""

from typing import Final

from scripts.boards.view import Board, Row, View

BOARD: Final = Board(
    "decisions",
    "Decisions",
    "How many jobs moved, how far and why, and who was left alone. No job and no user is a label: "
    "`rltuned history` and `rltuned explain` name jobs.",
    (
        Row("What was moved"),
        View(
            "Proposed changes", "In the last plan, by kind, written or not.", "short",
            (("sum by (kind) (rltuned_changes_planned{<C>})", "{{kind}}"),), kind="stack",
        ),
        View(
            "Applied changes", "Changes that Slurm took, by kind.", "cpm",
            (
                (
                    ('60 * sum by (kind) (rate(rltuned_changes_total{result="applied",<C>}'
                    "[<R>]))"),
                    "{{kind}}",
                ),
            ),
            kind="stack", runbook="RltunedChangesFail",
        ),
        View(
            "Values that others changed",
            "Written values found changed: by backfill, or by a person.", "cpm",
            (
                (
                    "60 * sum by (kind) (rate(rltuned_changes_reverted_total{<C>}[<R>]))",
                    "{{kind}}",
                ),
            ),
            runbook="RltunedChangesReverted",
        ),
        View(
            "Places moved, of those who moved up and down",
            "Median of the places between Slurm's order and the new one, of jobs whose place "
            "changes.",
            "short",
            (
                (
                    ("histogram_quantile(0.5, sum by (direction, le)"
                    " (rate(rltuned_rank_displacement_places_bucket{<C>}[<R>])))"),
                    "median {{direction}}",
                ),
                (
                    ("histogram_quantile(0.95, sum by (direction, le)"
                    " (rate(rltuned_rank_displacement_places_bucket{<C>}[<R>])))"),
                    "95 % {{direction}}",
                ),
            ),
            empty="no job stands elsewhere than in Slurm's order.", width=12,
        ),
        View(
            "Delays", "How long the ranked jobs of the last cycle are asked to step back.", "s",
            (
                ("max by (at) (rltuned_delay_seconds{<C>})", "{{at}}"),
                ("max(rltuned_neutral_delay_seconds{<C>})", "neutral"),
                ("max(rltuned_max_delay_seconds{<C>})", "longest allowed"),
            ),
            width=12, empty="no job was ranked.",
        ),
        Row("Who was left alone, and why"),
        View(
            "Left alone by reason", "Pending jobs of the last snapshot.", "short",
            (("sum by (reason) (rltuned_jobs_refused{<C>}) > 0", "{{reason}}"),),
            kind="stack", empty="every pending job was ranked.", width=12,
        ),
        View(
            "Held by a bound", "Jobs whose delay is shorter than the policy asked for.", "short",
            (("sum(rltuned_bounded_jobs{<C>})", "jobs"),), width=12,
        ),
        View(
            "Queue by partition", "Jobs of the last snapshot that name the partition first.",
            "short",
            (
                (
                    (
                        "sum by (partition, state)"
                        ' (rltuned_partition_jobs{<P>,state=~"pending|running"})'
                    ),
                    "{{partition}} {{state}}",
                ),
            ),
            width=12,
        ),
        View(
            "Ranked and moved by partition",
            "Pending jobs that the policy ranked, and those to which the plan gives a new number.",
            "short",
            (
                (
                    'sum by (partition, state) (rltuned_partition_jobs{<P>,state=~"ranked|moved"})',
                    "{{partition}} {{state}}",
                ),
            ),
            width=12,
        ),
        Row("Predicted against realised start order"),
        View(
            "Pairs in the predicted order",
            "Fraction of (started, waiting) pairs of jobs that an order ranks the same way, at the "
            "last observed start: rltuned's order and Slurm's. While rltuned writes, the two "
            "differ only by the last changes; backfill keeps both below 1.",
            "percentunit",
            (("max by (order) (rltuned_start_order_agreement_ratio{<C>})", "{{order}}"),), width=12,
        ),
        View(
            "Starts that the order predicted",
            "Jobs that Slurm started while nothing was written.", "short",
            (
                (
                    "sum by (verdict) (increase(rltuned_shadow_starts_total{<C>}[<R>]))",
                    "{{verdict}}",
                ),
            ),
            kind="stack", width=12,
        ),
    ),
)  # fmt: skip
