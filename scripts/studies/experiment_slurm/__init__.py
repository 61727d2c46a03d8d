"""The paper's cluster experiment on a real Slurm with a faster clock.

scripts/studies/results/real-slurm.md has its figures.
"""
