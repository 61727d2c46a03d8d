"""rltuned(1), rltuned(8) and rltuned.toml(5), made from the commands and the settings."""

import textwrap
from collections.abc import Iterator, Sequence

from rltuned import __version__
from rltuned.core.ladder import Rung
from rltuned.daemon.state import HealthState
from rltuned.settings.reference import fields_of, header, tables, toml, type_text
from scripts.tools.reference.commands import Command, Parameter, commands

DATE = "2026-11-28"
"""Of the last change to the text below."""
_WIDTH = 78
_DAEMON = ("run", "check", "restore", "breaker", "status")
"""The commands of which rltuned(8) shows the options as well."""


def rltuned_1() -> str:
    """The commands, for all users."""
    page = _head("rltuned", 1, DATE, __version__, "priority daemon for Slurm: its commands")
    page += [".SH SYNOPSIS", f"{_bold('rltuned')} {_italic('COMMAND')}"]
    page += [f"[{_italic('OPTIONS')}]"]
    page += _section(
        "DESCRIPTION",
        "rltuned watches Slurm's queue, gives each pending job a delay by a rule or a trained "
        "network, and passes the delays to Slurm as one more priority factor. Slurm stays the "
        "scheduler. rltuned(8) describes the daemon, rltuned.toml(5) its settings.",
        "All users may run plan, explain and simulate, which write nothing. A change of "
        "priorities needs Slurm's level Operator.",
    )
    page += [".SH COMMANDS"]
    for top in commands():
        for one in top.all():
            page += _command(one)
    page += _section(
        "EXIT STATUS",
        "0: done. 1: done, and something is unfit or could not be finished. 2: wrong use, "
        "settings, model or input. 130: interrupted.",
    )
    page += _environment()
    page += [".SH EXAMPLES"]
    page += _lines("A settings file for this cluster, and what rltuned would do with it:")
    page += _example(("rltuned config init", "rltuned check", "rltuned plan"))
    page += [".PP", *_lines("Why a job stands where it does:")]
    page += _example(("rltuned explain 4711",))
    page += [".PP", *_lines("Try the daemon without Slurm:")]
    page += _example(("rltuned run --backend sim --dry-run --cycles 3 --interval 5",))
    page += _see_also("rltuned(8), rltuned.toml(5), squeue(1), sprio(1), scontrol(1)")
    return _whole(page)


def rltuned_8() -> str:
    """The daemon, for administrators."""
    page = _head("rltuned", 8, DATE, __version__, "priority daemon for Slurm: the service")
    page += [".SH SYNOPSIS", f"{_bold('rltuned run')} [{_italic('OPTIONS')}]", ".br"]
    page += [f"{_bold('systemctl')} start|reload|stop|restart {_bold('rltuned')}"]
    page += _section("DESCRIPTION", *_CYCLE)
    page += [".SH STAGES", *_lines(_STAGES_INTRO)]
    for rung in Rung:
        page += _item(_bold(rung.value), _STAGES[rung])
    page += [".SH OPTIONS"]
    for name in _DAEMON:
        for one in next(c for c in commands() if c.path == f"rltuned {name}").all():
            page += [f".SS {_escape(one.path)}", *_about(one), *_options(one)]
    page += [".SH SIGNALS"]
    for term, text in _SIGNALS.items():
        page += _item(_bold(term), text)
    page += [".SH FILES"]
    for term, text in _FILES.items():
        page += _item(_italic(term), text)
    page += _environment()
    page += [".SH STATE"]
    page += _lines(
        f"Metrics and the status page are served on 127.0.0.1:9841: /, /metrics, /healthz, "
        f"/readyz. The states are {', '.join(state.value for state in HealthState)}."
    )
    page += _section(
        "EXIT STATUS",
        "0: ended as asked. 1: three unexpected errors in a row, or with --cycles the last cycle "
        "had no result, or a circuit breaker is open. 2: settings, model or address cannot be "
        "used; systemd then does not start it again.",
    )
    page += _see_also("rltuned(1), rltuned.toml(5), slurmctld(8), slurm.conf(5), systemctl(1)")
    return _whole(page)


def rltuned_toml_5() -> str:
    """The settings."""
    page = _head("rltuned.toml", 5, DATE, __version__, "settings of the priority daemon rltuned")
    page += [".SH SYNOPSIS", _italic("/etc/rltuned/rltuned.toml")]
    page += _section(
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
        page += [f".SH {_escape(header(name))}", *_lines(about)]
        for key, field in fields_of(model).items():
            default = "absent" if field.default is None else toml(field.default)
            what = f"{type_text(field)}; default {default}"
            page += _item(_bold(key), what, field.description or "")
    page += _see_also("rltuned(1), rltuned(8), slurm.conf(5)")
    return _whole(page)


def _command(command: Command) -> Iterator[str]:
    yield f".SS {_escape(command.usage)}"
    yield from _about(command)
    yield from _options(command)


def _about(command: Command) -> Iterator[str]:
    for number, text in enumerate(command.about):
        if number:
            yield ".PP"
        yield from _lines(text)


def _options(command: Command) -> Iterator[str]:
    for one in command.parameters:
        text = one.help
        if one.default:
            text = f"{text} Default: {one.default}.".strip()
        yield from _item(_term(one), text or "See above.")


def _term(parameter: Parameter) -> str:
    if parameter.is_argument:
        return _italic(parameter.names[0])
    names = ", ".join(_bold(name) for name in parameter.names)
    return f"{names} {_italic(parameter.kind)}" if parameter.kind else names


def _environment() -> Iterator[str]:
    yield ".SH ENVIRONMENT"
    yield from _item(_bold("RLTUNED_CONFIG"), "The settings file, as --config names it.")


def _see_also(pages: str) -> Iterator[str]:
    yield from _section("SEE ALSO", pages)


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


def _head(name: str, section: int, date: str, version: str, about: str) -> list[str]:
    """The head of a page: its title, and the line that `apropos` reads."""
    title = name.upper()
    return [
        '.\\" Made by `make docs`; a test fails when it is stale.',
        f'.TH {title} {section} "{date}" "rltuned {version}" "rltuned"',
        ".SH NAME",
        f"{_escape(name)} \\- {_escape(about)}",
    ]


def _escape(text: str) -> str:
    """Plain text: nothing in it is taken for a command, and every hyphen can be copied."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")


def _lines(text: str) -> Iterator[str]:
    """A paragraph, broken so that no line is long and none begins like a request."""
    for row in textwrap.wrap(text, _WIDTH, break_on_hyphens=False, break_long_words=False):
        safe = _escape(row)
        yield f"\\&{safe}" if safe.startswith(".") else safe


def _bold(text: str) -> str:
    return f"\\fB{_escape(text)}\\fR"


def _italic(text: str) -> str:
    return f"\\fI{_escape(text)}\\fR"


def _section(title: str, *paragraphs: str) -> Iterator[str]:
    yield f".SH {_escape(title)}"
    for number, text in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield from _lines(text)


def _item(term: str, *paragraphs: str) -> Iterator[str]:
    """An entry of a list: a term that is roff already, and what it means."""
    yield ".TP"
    yield term
    for number, text in enumerate(paragraphs):
        if number:
            yield ".IP"
        yield from _lines(text)


def _example(rows: Sequence[str]) -> Iterator[str]:
    """Lines to be typed, as they are."""
    yield from (".PP", ".nf", ".RS 4")
    for row in rows:
        safe = _escape(row)
        yield f"\\&{safe}" if safe.startswith((".", "\\(aq")) else safe
    yield from (".RE", ".fi")
