"""Faults injected for real: the daemon as a process, a real Slurm, and something goes wrong."""
