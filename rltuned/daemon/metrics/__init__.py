"""What Prometheus reads. Metrics are set from reports of cycles; nothing is computed here."""
