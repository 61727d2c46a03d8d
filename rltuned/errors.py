"""Everything that can go wrong on purpose, and who handles it.

| error         | raised by                         | handled by | effect                          |
|---------------|-----------------------------------|------------|---------------------------------|
| SettingsError | settings: bad file, key, value    | cli / loop | exit 2 / a reload keeps the old |
| ModelError    | policies.actor: card, digest ...  | cli / loop | exit 2 / a reload keeps the old |
| TraceError    | sim: trace, cluster, policy name  | cli        | exit 2                          |
| BackendError  | backends: command failed, timeout | loop       | the cycle is skipped, back-off  |
| SnapshotError | backends: answer unreadable       | loop       | the cycle is skipped            |
| BusyError     | daemon.load: slurmctld is busy    | loop       | the cycle is skipped, stretched |
| PolicyError   | core.decide: delays unfit         | loop       | an empty plan, counted          |
| SolverError   | solver, core.milp: no answer      | core.joint | greedy placement, noted         |
| JournalError  | daemon.journal: cannot be written | loop       | nothing is written to Slurm     |
| JournalLost.. | daemon.journal: gone or damaged   | loop / cli | the same; restore by Slurm, 3   |
| JournalHeld.. | daemon.journal: a live writer     | loop / cli | nothing is written; exit 1      |
| JournalOther. | journal: of another release       | loop / cli | the same; restore only names, 3 |
"""


class RltunedError(Exception):
    """Base of all of them; its text is one line that a person can act on."""


class SettingsError(RltunedError):
    """The settings file cannot be used; names file, key, line where known, and the reason."""


class ModelError(RltunedError):
    """A model bundle is missing, damaged, foreign or unsafe; names the file and the reason."""


class TraceError(RltunedError):
    """A trace, a cluster file or a policy name cannot be used; names file and line or field."""


class TooLittleError(TraceError):
    """A record allows no conclusion: too few jobs, or the simulator is too far off."""


class BackendError(RltunedError):
    """The world did not answer: a command failed, timed out, or the controller is away."""


class SnapshotError(RltunedError):
    """The world answered something that cannot be read with certainty."""


class BusyError(RltunedError):
    """slurmctld is busy; names the figures of sdiag that show it."""


class PolicyError(RltunedError):
    """A policy's delays or scores make no order."""


class SolverError(RltunedError):
    """A solver is missing, over its budget, ended badly, or gave an answer that is not one."""


class JournalError(RltunedError):
    """The journal cannot be opened, read or written."""


class JournalLostError(JournalError):
    """The journal was deleted, replaced or damaged: what rltuned wrote is unknown."""


class JournalHeldError(JournalError):
    """Another live process writes to Slurm by this journal."""


class JournalOtherError(JournalError):
    """The journal is whole, but another release must read it."""
