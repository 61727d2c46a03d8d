"""The commands that play, learn and judge; rltuned.cli imports one when it is used."""
