"""rltuned: a priority daemon for shared GPU clusters under Slurm."""

__version__ = "0.3.0"
