"""The paper's cluster experiment on a real Slurm with a faster clock: results/real-slurm.md."""
