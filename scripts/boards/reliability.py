"""Reliability: times, Slurm's answers, slurmctld's load, journal, breakers."""

from typing import Final

from scripts.boards.view import Board, Row, View

BOARD: Final = Board(
    "reliability",
    "Reliability",
    "Times, Slurm's answers, slurmctld's load, the journal and the circuit breakers.",
    (
        Row("Cycle"),
        View(
            "Time of a cycle by stage", "Mean.", "s",
            (
                (
                    ("sum by (stage) (rate(rltuned_cycle_duration_seconds_sum{<C>}[<R>]))"
                    " / (sum by (stage) (rate(rltuned_cycle_duration_seconds_count{<C>}"
                    "[<R>])) > 0)"),
                    "{{stage}}",
                ),
            ),
            kind="stack", runbook="RltunedCycleSlow",
        ),
        View(
            "Age of the snapshot", "Of what all other values describe.", "s",
            (("time() - rltuned_snapshot_timestamp_seconds{<C>}", "{{instance}}"),),
            runbook="RltunedStalled",
        ),
        View(
            "Interval and back-off", "What the daemon waits between two cycles.", "s",
            (
                (
                    "rltuned_interval_seconds{<C>} * rltuned_interval_stretch_ratio{<C>}",
                    "{{instance}} interval",
                ),
                ("rltuned_backoff_seconds{<C>}", "{{instance}} back-off"),
            ),
            runbook="RltunedSlurmNotAnswering",
        ),
        Row("Slurm"),
        View(
            "Time of Slurm's commands", "95 %.", "s",
            (
                (
                    ("histogram_quantile(0.95, sum by (command, le)"
                    " (rate(rltuned_slurm_command_duration_seconds_bucket{<C>}[<R>])))"),
                    "{{command}}",
                ),
            ),
            runbook="RltunedSlurmCommandsFail",
        ),
        View(
            "Commands that failed", "Or timed out.", "cpm",
            (
                (
                    ("60 * sum by (command)"
                    " (rate(rltuned_slurm_command_errors_total{<C>}[<R>]))"),
                    "{{command}}",
                ),
            ),
            kind="stack", runbook="RltunedSlurmCommandsFail",
        ),
        View(
            "slurmctld's load", "Shares of the bounds under [load]; at 1 slurmctld is left alone.",
            "percentunit",
            (
                ("max by (figure) (rltuned_slurmctld_load_ratio{<C>})", "{{figure}}"),
                ("min(rltuned_slurmctld_load_known{<C>})", "known"),
            ),
            runbook="RltunedSlurmctldBusy",
        ),
        View(
            "Asked to back off", "By slurmctld's own limit of requests.", "cpm",
            (("60 * sum(rate(rltuned_rate_limited_total{<C>}[<R>]))", "limited"),),
            runbook="RltunedRateLimited",
        ),
        View(
            "Daemons that write", "By mode: at most one per cluster may be live.", "short",
            (("sum by (cluster, mode) (rltuned_mode{<C>})", "{{cluster}} {{mode}}"),),
            kind="stack", runbook="RltunedTwoWriters",
        ),
        View(
            "Writes that wait", "Jobs whose number is off, beyond this cycle's change cap.",
            "short",
            (('sum(rltuned_jobs_refused{reason="change_budget",<C>})', "jobs"),),
        ),
        Row("Journal and breakers"),
        View(
            "Journal", "Whether it can be used; if not, nothing is written to Slurm.", "none",
            (("min(rltuned_journal_usable{<C>})", "journal"),), kind="stat", good_from=1,
            runbook="RltunedJournalUnusable", words=(("0", "unusable"), ("1", "usable")), width=3,
        ),
        View(
            "Another daemon", "1 while jobs have numbers of another daemon.", "none",
            (("max(rltuned_rival_suspected{<C>})", "rival"),), kind="stat", good_from=0,
            runbook="RltunedRivalSuspected", words=(("0", "none"), ("1", "suspected")), width=3,
        ),
        View(
            "Size of the journal", "With its write-ahead log.", "bytes",
            (("max by (instance) (rltuned_journal_size_bytes{<C>})", "{{instance}}"),),
            runbook="RltunedJournalUnusable", width=6,
        ),
        View(
            "Rows of the journal", "By table.", "short",
            (("max by (table) (rltuned_journal_rows{<C>})", "{{table}}"),), width=6,
        ),
        View(
            "Breakers", "Partitions whose breaker is open.", "short",
            (("max by (partition) (rltuned_breaker_open{<P>})", "{{partition}}"),),
            kind="stack", runbook="RltunedBreakerOpen", width=6,
        ),
        View(
            "Breakers opened", "By cause.", "short",
            (
                (
                    "sum by (cause) (increase(rltuned_breaker_opened_total{<C>}[$__range]))",
                    "{{cause}}",
                ),
            ),
            kind="stat", runbook="RltunedBreakerOpen", width=12, height=5,
        ),
        View(
            "Version", "Of the daemons.", "none",
            (("sum by (cluster, instance, version) (rltuned_build_info{<C>})", "{{version}}"),),
            kind="table", width=12, height=5,
        ),
    ),
)  # fmt: skip
