"""Overview: does it work, does it help."""

from typing import Final

from scripts.boards.view import Board, Row, View

_MEAN_WAIT: Final = (
    "sum by (delays) (increase(rltuned_job_wait_seconds_sum{<P>}[$__range]))"
    " / (sum by (delays) (increase(rltuned_job_wait_seconds_count{<P>}[$__range])) > 0)"
)
_MEAN_SLOWDOWN: Final = (
    "sum by (delays) (increase(rltuned_job_bounded_slowdown_ratio_sum{<P>}[$__range]))"
    " / (sum by (delays) (increase(rltuned_job_bounded_slowdown_ratio_count{<P>}[$__range])) > 0)"
)
_NO_JOBS: Final = "no job started; off blocks exist on stage canary, or with full_off_share."

BOARD: Final = Board(
    "overview",
    "Overview",
    "Whether rltuned works, and whether it helps.",
    (
        Row("Does it work?"),
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
            "Queue", "Pending jobs, those that the policy ranked, and those that rltuned wrote.",
            "short",
            (
                ('sum(rltuned_jobs{state="pending",<C>})', "pending"),
                ("sum(rltuned_jobs_chosen{<C>})", "ranked"),
                ("sum(rltuned_jobs_owned{<C>})", "carry a number of rltuned"),
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
        Row("Does it help?"),
        View(
            "On less off blocks",
            "Mean wait in on blocks of the switchback less that in off blocks, with its 95 % "
            "interval by pairs of blocks, under the model in force. Below 0 it helps; an interval "
            "that holds 0 says nothing yet. All partitions together.",
            "s",
            (
                (
                    (
                        "max by (cluster, at)"
                        " (rltuned_canary_wait_difference_seconds{<C>})"
                    ),
                    "{{cluster}} {{at}}",
                ),
            ),
            runbook="Does it help",
            empty="there is no switchback, or fewer than 10 pairs of blocks are decided.", width=12,
        ),
        View(
            "Blocks", "1 in an on block of a partition, 0 in an off block.", "none",
            (("max by (partition) (rltuned_canary_delays_on{<P>})", "{{partition}}"),),
            runbook="Does it help", empty="there is no switchback.", width=12,
        ),
        View(
            "Mean wait, delays on and off",
            "Of the jobs that started in the range shown, by the block in which they became "
            "eligible. *On less off blocks* has the interval.",
            "s", ((_MEAN_WAIT, "{{delays}}"),), kind="stat", runbook="RltunedCanaryHarms",
            empty=_NO_JOBS, height=6,
        ),
        View(
            "Mean bounded slowdown, delays on and off",
            "Of the jobs that ended in the range shown; 1 is best.", "none",
            ((_MEAN_SLOWDOWN, "{{delays}}"),), kind="stat", runbook="RltunedCanaryHarms",
            empty="no job was seen to start and end.", height=6,
        ),
        View(
            "Evidence that delays do harm",
            "E-value: 1 says nothing, at 1000 the breaker opens.", "none",
            (("max by (figure) (rltuned_canary_evidence_ratio{<P>})", "{{figure}}"),),
            kind="stat", runbook="RltunedCanaryHarms", bad_from=100, height=6,
        ),
        View(
            "Median wait, delays on and off", "Over a moving hour.", "s",
            (
                (
                    ("histogram_quantile(0.5, sum by (partition, delays, le)"
                    " (rate(rltuned_job_wait_seconds_bucket{<P>}[1h])))"),
                    "{{partition}} {{delays}}",
                ),
            ),
            empty="no job started within an hour.", width=12,
        ),
        View(
            "Jobs started", "By whether delays were on when they became eligible.", "short",
            (
                (
                    "sum by (delays) (increase(rltuned_job_wait_seconds_count{<P>}[<R>]))",
                    "{{delays}}",
                ),
            ),
            kind="stack", width=12,
        ),
    ),
)  # fmt: skip
