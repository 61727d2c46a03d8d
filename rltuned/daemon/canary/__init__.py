"""What delays do to jobs: outcomes, the switchback's blocks, their effect, circuit breakers.

Asks Slurm nothing and writes nothing to it.
"""
