"""How rltuned decides: a frozen snapshot in, a frozen decision out.

No clock, no randomness, no files, no network: "now" is `snapshot.taken_at`. numpy is the only
library here (and pulp, in milp.py alone).
"""
