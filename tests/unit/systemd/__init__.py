"""Tests of rltuned."""
