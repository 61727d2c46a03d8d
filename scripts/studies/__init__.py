"""Studies: what the documents show of orders and of a real Slurm."""
