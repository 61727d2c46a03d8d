"""`rltuned tune`: orders from a site's own record, and a test. Writes nothing to Slurm."""
