"""Who scores: the field's classic rules and the trained actor. Knows nothing of Slurm or time."""
