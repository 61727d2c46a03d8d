"""The first jobs of the ranking placed together: an integer program, and what follows from it.

candidates: where one job could go, and what that costs. problem: jobs, slots and options. model:
the program (the one place that imports pulp). sharing: which exclusive jobs share their nodes.
solution: when a program is solved, and what it means. docs/placement.md has the formulas.
"""
