"""Model health: which policy, and does it see what it was trained on."""

from typing import Final

from scripts.boards.view import Board, Row, View

BOARD: Final = Board(
    "model-health",
    "Model health",
    "Which policy is in force, and whether it sees what it was trained on.",
    (
        Row("Policy"),
        View(
            "Policy in force", "With the digest of its card and its feature schema.", "none",
            (
                (
                    "sum by (cluster, instance, name, digest, schema) (rltuned_policy_info{<C>})",
                    "{{name}}",
                ),
            ),
            kind="table", runbook="RltunedReloadFailed", width=12, height=6,
        ),
        View(
            "Last reload", "Whether settings and model could be loaded.", "none",
            (("min(rltuned_config_last_reload_successful{<C>})", "reload"),),
            kind="stat", runbook="RltunedReloadFailed", good_from=1, width=6, height=6,
            words=(("0", "refused"), ("1", "good")),
        ),
        View(
            "Cycles without usable scores", "In the range shown.", "short",
            (
                ('sum(increase(rltuned_cycles_skipped_total{reason="policy",<C>}[$__range]))', "n"),
            ),
            kind="stat", runbook="RltunedPolicyFails", bad_from=1, width=6, height=6,
        ),
        Row("Drift"),
        View(
            "Outside the training range",
            "Share of the ranked jobs whose feature lies outside the range that the model's card "
            "gives, per feature.",
            "percentunit",
            (("max by (feature) (rltuned_feature_outside_training_ratio{<C>})", "{{feature}}"),),
            runbook="RltunedFeatureDrift", width=12, height=9,
            empty="the policy is a rule, or its card has no ranges.",
        ),
        View(
            "Features, median", "Of the ranked jobs in the last cycle, each on its own scale of "
            "0 to 1.", "percentunit",
            (('avg by (feature) (rltuned_feature_ratio{at="median",<C>})', "{{feature}}"),),
            width=12, height=9, empty="no job was ranked.",
        ),
        View(
            "Features, largest and smallest", "Of the ranked jobs in the last cycle.",
            "percentunit",
            (
                ('max by (feature) (rltuned_feature_ratio{at="max",<C>})', "{{feature}} largest"),
                ('min by (feature) (rltuned_feature_ratio{at="min",<C>})', "{{feature}} smallest"),
            ),
            width=12, height=9, empty="no job was ranked.",
        ),
        View(
            "Spread of the scores",
            "Largest less smallest score: near 0 the policy does not tell jobs apart.", "short",
            (
                (
                    ('max by (cluster, instance) (rltuned_policy_score{at="max",<C>})'
                    ' - min by (cluster, instance) (rltuned_policy_score{at="min",<C>})'),
                    "spread",
                ),
            ),
            width=12, height=9, empty="no job was ranked.",
        ),
    ),
)  # fmt: skip
