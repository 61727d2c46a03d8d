"""Tools of the developers: generated pages, records of Slurm, the matrix, the soak."""
