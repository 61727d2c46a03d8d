"""The paper's cluster experiment on a real Slurm with a faster clock (docs/results-slurm.md)."""
