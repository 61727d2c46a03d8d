"""The HTTP server and what it serves: metrics, readiness, the status page. Reads, never writes."""
