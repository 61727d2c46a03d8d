"""Traces played by the compiled kernel under any order, and what is measured of a play.

True run times exist here and in rltuned/sim, and nowhere else.
"""
