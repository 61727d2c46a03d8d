"""How fast it is: `make bench` runs the cases, `make bench-check` looks for what became slower."""
