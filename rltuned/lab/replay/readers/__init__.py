"""Readers of other people's traces. What cannot be read is counted and named by line."""
