"""Slow proofs on a Debian root that systemd boots: `make test-systemd`. Not part of `make test`."""
