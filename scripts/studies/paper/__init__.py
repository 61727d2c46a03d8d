"""What RLTune, DL2 and WORL-RTGS claim, cell by cell beside what is measured on public data.

RLTune's protocol: the order is chosen at every event and has no bounds, episodes are of
WINDOW_JOBS jobs from an empty cluster, the base is the rule of the other pipeline, and windows of
the last part of a trace judge. Both sides have the same placement (pack), backfill (EASY) and
limits, and no prediction but in Table 8. What differs on purpose: limits are drawn, never true run
times; arrivals are stretched to LOADS, for a whole cluster's stream on a slice measures the length
of the window. `make paper` prints the tables; MINUTES=60 plays what is missing first.
"""
