"""The live world: Slurm's own commands, read and fed as text.

run.py is how a command is run; strings.py knows Slurm's notations; columns.py pins what is asked
for; jobs.py and nodes.py turn answers into domain types; factors.py reads sprio; backend.py
observes and applies; checks.py judges a site's settings.
"""
