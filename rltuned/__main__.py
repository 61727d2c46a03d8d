"""Lets `python -m rltuned` do what the `rltuned` command does."""

from rltuned.cli import main

main()
