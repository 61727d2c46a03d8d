"""rltuned(1), rltuned(8) and rltuned.toml(5), made from the commands and the settings."""

from collections.abc import Iterator
from functools import cache

from rltuned import __version__
from rltuned.core.ladder import Rung
from rltuned.daemon.state import HealthState
from rltuned.settings.reference import fields_of, header, tables, toml, type_text
from scripts.tools.reference import roff
from scripts.tools.reference.commands import Command, Parameter, commands

DATE = "2026-11-28"
"""Of the last change to the text below."""
_DAEMON = ("run", "check", "restore", "breaker", "status")
"""The commands of which rltuned(8) shows the options as well."""


@cache
def _commands() -> tuple[Command, ...]:
    return commands()


def rltuned_1() -> str:
    """The commands, for all users."""
    page = roff.page("rltuned", 1, DATE, __version__, "priority daemon for Slurm: its commands")
    page += [".SH SYNOPSIS", f"{roff.bold('rltuned')} {roff.italic('COMMAND')}"]
    page += [f"[{roff.italic('OPTIONS')}]"]
    page += roff.section(
        "DESCRIPTION",
        "rltuned watches Slurm's queue, gives each pending job a delay by a rule or a trained "
        "network, and passes the delays to Slurm as one more priority factor. Slurm stays the "
        "scheduler. rltuned(8) describes the daemon, rltuned.toml(5) its settings.",
        "All users may run plan, explain and simulate, which write nothing. A change of "
        "priorities needs Slurm's level Operator.",
    )
    page += [".SH COMMANDS"]
    for top in _commands():
        for one in top.all():
            page += _command(one)
    page += roff.section(
        "EXIT STATUS",
        "0: done. 1: done, and something is unfit or could not be finished. 2: wrong use, "
        "settings, model or input. 130: interrupted.",
    )
    page += _environment()
    page += [".SH EXAMPLES"]
    page += roff.lines("A settings file for this cluster, and what rltuned would do with it:")
    page += roff.example(("rltuned config init", "rltuned check", "rltuned plan"))
    page += [".PP", *roff.lines("Why a job stands where it does:")]
    page += roff.example(("rltuned explain 4711",))
    page += [".PP", *roff.lines("Try the daemon without Slurm:")]
    page += roff.example(("rltuned run --backend sim --dry-run --cycles 3 --interval 5",))
    page += _see_also("rltuned(8), rltuned.toml(5), squeue(1), sprio(1), scontrol(1)")
    return _whole(page)


def rltuned_8() -> str:
    """The daemon, for administrators."""
    page = roff.page("rltuned", 8, DATE, __version__, "priority daemon for Slurm: the service")
    page += [".SH SYNOPSIS", f"{roff.bold('rltuned run')} [{roff.italic('OPTIONS')}]", ".br"]
    page += [f"{roff.bold('systemctl')} start|reload|stop|restart {roff.bold('rltuned')}"]
    page += roff.section("DESCRIPTION", *_CYCLE)
    page += [".SH STAGES", *roff.lines(_STAGES_INTRO)]
    for rung in Rung:
        page += roff.item(roff.bold(rung.value), _STAGES[rung])
    page += [".SH OPTIONS"]
    for name in _DAEMON:
        for one in next(c for c in _commands() if c.path == f"rltuned {name}").all():
            page += [f".SS {roff.escape(one.path)}", *_about(one), *_options(one)]
    page += [".SH SIGNALS"]
    for term, text in _SIGNALS.items():
        page += roff.item(roff.bold(term), text)
    page += [".SH FILES"]
    for term, text in _FILES.items():
        page += roff.item(roff.italic(term), text)
    page += _environment()
    page += [".SH STATE"]
    page += roff.lines(
        f"Metrics and the status page are served on 127.0.0.1:9841: /, /metrics, /healthz, "
        f"/readyz. The states are {', '.join(state.value for state in HealthState)}."
    )
    page += roff.section(
        "EXIT STATUS",
        "0: ended as asked. 1: three unexpected errors in a row, or with --cycles the last cycle "
        "had no result, or a circuit breaker is open. 2: settings, model or address cannot be "
        "used; systemd then does not start it again.",
    )
    page += _see_also("rltuned(1), rltuned.toml(5), slurmctld(8), slurm.conf(5), systemctl(1)")
    return _whole(page)


def rltuned_toml_5() -> str:
    """The settings."""
    page = roff.page(
        "rltuned.toml", 5, DATE, __version__, "settings of the priority daemon rltuned"
    )
    page += [".SH SYNOPSIS", roff.italic("/etc/rltuned/rltuned.toml")]
    page += roff.section(
        "DESCRIPTION",
        "One TOML file. Everything has a safe default, so it may be empty or missing. Order: "
        "defaults, then the file, then command-line flags. No environment variable changes a "
        "value.",
        "An unknown key, a wrong type or a value out of bounds stops the start with exit status 2 "
        "and names file, line and key; at a reload such a file is refused and the old settings "
        "stay. The file must belong to root or to the user who runs rltuned, and no other user "
        "may write to it.",
        '"rltuned config init" writes one that fits the cluster, "rltuned config check FILE" '
        'checks one, "rltuned config show" prints every value in force and where it comes from.',
    )
    for name, about, model in tables():
        page += [f".SH {roff.escape(header(name))}", *roff.lines(about)]
        for key, field in fields_of(model).items():
            default = "absent" if field.default is None else toml(field.default)
            what = f"{type_text(field)}; default {default}"
            page += roff.item(roff.bold(key), what, field.description or "")
    page += _see_also("rltuned(1), rltuned(8), slurm.conf(5)")
    return _whole(page)


def _command(command: Command) -> Iterator[str]:
    yield f".SS {roff.escape(command.usage)}"
    yield from _about(command)
    yield from _options(command)


def _about(command: Command) -> Iterator[str]:
    for number, text in enumerate(command.about):
        if number:
            yield ".PP"
        yield from roff.lines(text)


def _options(command: Command) -> Iterator[str]:
    for one in command.parameters:
        text = one.help
        if one.default:
            text = f"{text} Default: {one.default}.".strip()
        yield from roff.item(_term(one), text or "See above.")


def _term(parameter: Parameter) -> str:
    if parameter.is_argument:
        return roff.italic(parameter.names[0])
    names = ", ".join(roff.bold(name) for name in parameter.names)
    return f"{names} {roff.italic(parameter.kind)}" if parameter.kind else names


def _environment() -> Iterator[str]:
    yield ".SH ENVIRONMENT"
    yield from roff.item(roff.bold("RLTUNED_CONFIG"), "The settings file, as --config names it.")


def _see_also(pages: str) -> Iterator[str]:
    yield from roff.section("SEE ALSO", pages)


def _whole(page: list[str]) -> str:
    return "\n".join(page) + "\n"


_CYCLE = (
    (
        "Once a minute rltuned reads the queue and the nodes, selects the jobs in scope, computes "
        "their delays, and plans the numbers that are wrong. If its stage allows it, it writes "
        "them: to a journal first, then by scontrol, and reads them back."
    ),
    (
        "An answer of Slurm that cannot be read with certainty ends the cycle; nothing is "
        "guessed. Held, dependent and reserved jobs and those of the partitions under "
        "scope.sla_partitions are left alone. When the service stops, however it stops, every "
        "job gets its own priority back."
    ),
)
_STAGES_INTRO = (
    "ladder.stage in rltuned.toml(5) says how far rltuned is trusted; only a person raises it. Set "
    "it and reload. A lower stage restores what was written."
)
_STAGES = {
    Rung.OBSERVE: "Reads the queue and publishes waits. The default.",
    Rung.SHADOW: "Also decides, logs what it would change, and compares it with Slurm's own order.",
    Rung.CANARY: "Writes in blocks of time, which alternate with blocks in Slurm's own order.",
    Rung.FULL: "Writes, for all jobs in scope.",
}
_SIGNALS = {
    "SIGTERM, SIGINT": "The cycle ends, then every job is restored; the process ends.",
    "SIGHUP": "Settings and model are read again; what cannot be used is refused and the old ones "
    "stay. [journal], [http], [log], [ha], daemon.state_dir and "
    "predictor.enabled are read at start only.",
}
_FILES = {
    "/etc/rltuned/rltuned.toml": "The settings, rltuned.toml(5). /etc/rltuned/NAME.toml is read by "
    "rltuned@NAME.service.",
    "/var/lib/rltuned/journal.sqlite": "The journal: what was written to which job, and why. "
    "Belongs to the service user, mode 0600.",
    "/run/rltuned/PAUSE": "While it exists nothing is written; watching goes on.",
    "/usr/share/rltuned/models": "The trained policies that come with the package.",
}
