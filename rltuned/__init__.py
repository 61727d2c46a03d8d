"""rltuned: a priority daemon for shared GPU clusters under Slurm."""

__version__ = "0.2.0"
