"""What rltuned has written, decided and seen, in SQLite: intents before writes, ownership, cycles.

No Slurm, no HTTP, no clock of its own. The daemon is its one writer.
"""
