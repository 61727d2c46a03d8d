"""Whole episodes of a learned order, compiled: the simulator's engine with the policy inside.

Training needs millions of decisions, so features and networks have a compiled twin here. Tests
hold the twins equal to core/features and policies/network, and the episodes equal to sim/engine.
"""
