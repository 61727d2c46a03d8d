"""What must hold for every queue and every cluster."""
