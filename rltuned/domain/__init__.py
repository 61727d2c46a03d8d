"""What things are: jobs, nodes, snapshots, plans, ports.

Standard library only, frozen, no I/O, no clock. Whatever is built here is valid: constructors
check, so no floor above has to.
"""
