"""The simulated world: traces, a cluster that behaves as Slurm does, and honest comparisons.

True run times exist on this floor and nowhere else.
"""
