"""`rltuned tune`: candidates from a site's own record, one exam, and a gate that mostly says kept.

Writes nothing to Slurm.
"""
