"""The compiled world: cluster, passes, features, networks and the daemon's cycles, for numba.

What it is for: long traces in `rltuned simulate`, `evaluate` and `backtest`, and the episodes of a
training. core/ holds the same formulas in plain numpy, which the daemon runs; tests hold the two
equal, start by start, node by node and write by write.

Forbidden here: Python objects in compiled functions (arrays and named tuples of arrays only),
files, clocks, chance that does not come from an argument, and imports of anything above core.
sim/ builds the arrays from a trace and a cluster.
"""
