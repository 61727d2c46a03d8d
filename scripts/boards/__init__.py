"""The Grafana dashboards: what is on each of them, in Python."""
