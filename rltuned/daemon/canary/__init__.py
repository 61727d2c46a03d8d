"""How jobs fare under rltuned: outcomes, the switchback's blocks, their effect, circuit breakers.

Asks Slurm nothing and writes nothing to it.
"""
