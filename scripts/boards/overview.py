"""Overview: is it working, is it helping."""

from typing import Final

from scripts.boards.view import Board, Row, View

_MEAN_WAIT: Final = (
    "sum by (arm) (increase(rltuned_job_wait_seconds_sum{<P>}[$__range]))"
    " / (sum by (arm) (increase(rltuned_job_wait_seconds_count{<P>}[$__range])) > 0)"
)
_MEAN_SLOWDOWN: Final = (
    "sum by (arm) (increase(rltuned_job_bounded_slowdown_ratio_sum{<P>}[$__range]))"
    " / (sum by (arm) (increase(rltuned_job_bounded_slowdown_ratio_count{<P>}[$__range])) > 0)"
)
_NO_REPORT: Final = (
    "no report is kept (rltuned-report.timer is not enabled), or too little happened in its time."
)
_NO_CANARY: Final = "no job of an arm started; treated and control exist on stage canary only."

BOARD: Final = Board(
    "overview",
    "Overview",
    "Whether rltuned works, and whether it helps.",
    (
        Row("Is it working?"),
        View(
            "Daemons up", "Daemons that Prometheus can scrape.", "short",
            (('sum(up{job="rltuned",<C>})', "up"),),
            kind="stat", runbook="RltunedDown", good_from=1, width=4, height=4,
        ),
        View(
            "Last result", "Age of the last cycle that came to a result.", "s",
            (("max(time() - rltuned_last_success_timestamp_seconds{<C>})", "age"),),
            kind="stat", runbook="RltunedStalled", bad_from=300, width=4, height=4,
        ),
        View(
            "Stage", "The stage of the trust ladder in force.", "none",
            (("sum by (stage) (rltuned_stage{<C>} == 1)", "{{stage}}"),),
            kind="stat", width=4, height=4,
        ),
        View(
            "Mode", "What the last cycle was allowed to do.", "none",
            (("sum by (mode) (rltuned_mode{<C>} == 1)", "{{mode}}"),),
            kind="stat", runbook="RltunedPaused", width=4, height=4,
        ),
        View(
            "Open breakers", "Partitions where a circuit breaker stopped all writing.", "short",
            (("sum(rltuned_breaker_open{<P>})", "open"),),
            kind="stat", runbook="RltunedBreakerOpen", bad_from=1, width=4, height=4,
        ),
        View(
            "Alerts firing", "Alerts of deploy/prometheus/alerts.yml that fire now.", "short",
            (
                (
                    'count(ALERTS{alertname=~"Rltuned.+",alertstate="firing",<C>}) or vector(0)',
                    "firing",
                ),
            ),
            kind="stat", bad_from=1, width=4, height=4,
        ),
        View(
            "Cycles", "Cycles with a result and without one, by reason.", "cpm",
            (
                (
                    ("60 * (sum(rate(rltuned_cycles_total{<C>}[<R>]))"
                    " - sum(rate(rltuned_cycles_skipped_total{<C>}[<R>])))"),
                    "with a result",
                ),
                (
                    "60 * sum by (reason) (rate(rltuned_cycles_skipped_total{<C>}[<R>]))",
                    "skipped: {{reason}}",
                ),
            ),
            kind="stack", runbook="RltunedStalled",
        ),
        View(
            "Queue", "Pending jobs, those that the policy ranked, and those with a value of ours.",
            "short",
            (
                ('sum(rltuned_jobs{state="pending",<C>})', "pending"),
                ("sum(rltuned_jobs_chosen{<C>})", "ranked"),
                ("sum(rltuned_jobs_owned{<C>})", "carry our value"),
                ('sum(rltuned_jobs{state="running",<C>})', "running"),
            ),
        ),
        View(
            "Changes", "Changes sent to Slurm, by what came of them.", "cpm",
            (
                (
                    "60 * sum by (result) (rate(rltuned_changes_total{<C>}[<R>]))",
                    "{{result}}",
                ),
            ),
            kind="stack", runbook="RltunedChangesFail",
        ),
        Row("Is it helping?"),
        View(
            "Treated less control",
            "Mean wait of the canary's treated jobs less that of its control, with its 95 % "
            "interval, since the canary began or the daemon started. Below 0 it helps; an interval "
            "that holds 0 says nothing yet. All partitions together.",
            "s",
            (
                (
                    (
                        "max by (cluster, at)"
                        ' (rltuned_canary_wait_difference_seconds{source="running",<C>})'
                    ),
                    "{{cluster}} {{at}}",
                ),
            ),
            runbook="Does it help",
            empty="there is no canary, or fewer than 30 jobs on a side.",
        ),
        View(
            "The same, by the last report",
            "From the journal, over the days that the report reads; a restart of the daemon does "
            "not shorten it.",
            "s",
            (
                (
                    (
                        "max by (cluster, at)"
                        ' (rltuned_canary_wait_difference_seconds{source="report",<C>})'
                    ),
                    "{{cluster}} {{at}}",
                ),
            ),
            runbook="Does it help",
            empty="no report is kept, there was no canary, or fewer than 30 jobs on a side.",
        ),
        View(
            "Played again: ours less Slurm's own order",
            "The journal's last days played again in the simulator: mean wait under the policy "
            "less that under Slurm's own order, with its 95 % interval. Below 0 it helps. A model "
            "of the cluster, not the cluster; `rltuned report` says what is assumed.",
            "s",
            (
                (
                    "max by (cluster, at) (rltuned_replay_wait_difference_seconds{<C>})",
                    "{{cluster}} {{at}}",
                ),
            ),
            runbook="Does it help", empty=_NO_REPORT,
        ),
        View(
            "Played again: mean waits",
            "Simulated under Slurm's own order (slurm) and under the policy (ours), and what the "
            "jobs waited in truth (real): how far real and simulated lie apart says how far to "
            "trust the simulator.",
            "s",
            (
                (
                    "max by (cluster, order) (rltuned_replay_wait_seconds{<C>})",
                    "{{cluster}} {{order}}",
                ),
            ),
            kind="stat", runbook="Does it help", empty=_NO_REPORT, width=12, height=5,
        ),
        View(
            "Report", "What the last `rltuned report --keep` left: fresh, stale, unusable, absent.",
            "none", (("sum by (state) (rltuned_report_state{<C>} == 1)", "{{state}}"),),
            kind="stat", runbook="RltunedReportStale", width=4, height=5,
        ),
        View(
            "Age of the report", "It is made at night.", "s",
            (("max(time() - rltuned_report_timestamp_seconds{<C>})", "age"),),
            kind="stat", runbook="RltunedReportStale", empty=_NO_REPORT, width=4, height=5,
        ),
        View(
            "Jobs of the report",
            "Played again and compared, and of all that were played the run times that are "
            "assumed: the more of these, the less it is worth.",
            "short",
            (
                (
                    'max by (cluster, what) (rltuned_replay_jobs{what=~"compared|assumed",<C>})',
                    "{{cluster}} {{what}}",
                ),
            ),
            kind="stat", runbook="Does it help", empty=_NO_REPORT, width=4, height=5,
        ),
        View(
            "Mean wait by arm",
            "Of the jobs that started in the range shown. treated against control is the honest "
            "comparison: both are drawn by lot from the same jobs.",
            "s", ((_MEAN_WAIT, "{{arm}}"),), kind="stat", runbook="RltunedCanaryHarms",
            empty=_NO_CANARY, height=6,
        ),
        View(
            "Mean bounded slowdown by arm",
            "Of the jobs that ended in the range shown; 1 is best.", "none",
            ((_MEAN_SLOWDOWN, "{{arm}}"),), kind="stat", runbook="RltunedCanaryHarms",
            empty="no job of an arm was seen to start and end.", height=6,
        ),
        View(
            "Evidence that the canary harms",
            "What a bet on harm has won: 1 says nothing, at 1000 the breaker opens.", "none",
            (("max by (figure) (rltuned_canary_evidence_ratio{<P>})", "{{figure}}"),),
            kind="stat", runbook="RltunedCanaryHarms", bad_from=100, height=6,
        ),
        View(
            "Median wait by partition and arm", "Over a moving hour.", "s",
            (
                (
                    ("histogram_quantile(0.5, sum by (partition, arm, le)"
                    " (rate(rltuned_job_wait_seconds_bucket{<P>}[1h])))"),
                    "{{partition}} {{arm}}",
                ),
            ),
            empty="no job started within an hour.", width=12,
        ),
        View(
            "Jobs started", "By arm: the more, the more the comparison is worth.", "short",
            (
                (
                    "sum by (arm) (increase(rltuned_job_wait_seconds_count{<P>}[<R>]))",
                    "{{arm}}",
                ),
            ),
            kind="stack", width=12,
        ),
    ),
)  # fmt: skip
