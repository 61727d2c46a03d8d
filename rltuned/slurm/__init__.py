"""The live world: Slurm's own commands, read and fed as text.

commands.py is the only module of the package that starts a program; strings.py knows Slurm's
notations; columns.py pins what is asked for; jobs.py and nodes.py turn answers into domain types;
priorities.py reads sprio; backend.py observes and applies; checks.py judges a site's settings.
"""
