"""The live world: Slurm's own commands, read and fed as text.

run.py is how a command is run; values.py knows Slurm's notations; columns.py pins what is asked
for; squeue.py, request.py, priority.py and nodes.py turn answers into domain types; backend.py
observes and applies.
"""
