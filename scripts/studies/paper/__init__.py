"""What RLTune, DL2 and WORL-RTGS claim, cell by cell beside what is measured on public data.

    python -m scripts.studies.paper run [--part PART] [--minutes M] [--only "philly, sjf"]
    python -m scripts.studies.paper table [--json]
    python -m scripts.studies.paper check --part PART [--sample N]

RLTune's protocol: the order is chosen at every event and has no bounds, episodes are of
WINDOW_JOBS jobs from an empty cluster, the base is the rule of the other pipeline, and windows of
the last part of a trace judge. Both sides have the same placement (pack), backfill (EASY) and
limits, and no prediction but in Table 8. What differs on purpose: limits are drawn, never true run
times; arrivals are stretched to LOADS, for a whole cluster's stream on a slice measures the length
of the window. `make paper` plays what is missing and prints the tables.

| part     | of the paper               | rows                           |
|----------|----------------------------|--------------------------------|
| bases    | Figures 12, 14, 15, Table 6 | docs/data/paper.jsonl          |
| qssf     | Table 8, Figures 16 and 17 | docs/data/paper-qssf.jsonl     |
| peers    | Table 9                    | docs/data/paper-peers.jsonl    |
| transfer | Table 7                    | docs/data/paper-transfer.jsonl |
| warm     | DL2's warm start           | docs/data/paper-warm.jsonl     |
| planners | WORL-RTGS                  | docs/data/planners.jsonl       |
| testbed  | Figures 18 and 19          | docs/data/slurm/runs.json      |
"""
