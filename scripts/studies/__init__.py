"""Studies: trainings that differ in one thing, and networks that the product does not ship."""
