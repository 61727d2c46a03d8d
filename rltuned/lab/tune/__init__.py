"""`rltuned tune`: candidates from a site's own record, one test period, and a gate that mostly says
kept.

Writes nothing to Slurm.
"""
