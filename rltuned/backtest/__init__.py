"""Would it have been worth it? A site's own history, played under Slurm's order and under ours."""
