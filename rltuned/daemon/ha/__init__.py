"""One of several daemons writes: the lease, who leads, fences, and rivals without a lease."""
