"""The simulated cluster in plain Python: traces, nodes, and a Slurm that starts jobs on them.

Backend `sim` (demo, dry runs) and the referee of the compiled kernel, rltuned/lab/kernel.
"""
