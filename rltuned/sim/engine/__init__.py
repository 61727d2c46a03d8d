"""The compiled twin of sim/world and sim/dispatch, for millions of simulated jobs.

It plays event mode without node faults. The plain world is the definition that people read; tests
hold the two equal, start by start and node by node, on random worlds.
"""
