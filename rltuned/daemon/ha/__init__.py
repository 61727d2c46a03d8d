"""One of several daemons writes: the lease, and who leads."""
