"""What a day came to: whether anything is wrong, and the table."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]
OURS = {"policy", "snapshot", "unexpected"}
"""Skips that are no answer of Slurm's."""
DOUBTS = {"numbers_unexplained", "journal_unusable", "rival_suspected", "clock_off"}
"""States in which it does not know whose the numbers are."""
FEWEST_CYCLES = 0.9
"""Of one a minute, skipped ones included. A cycle that takes longer than its minute of the faster
clock leaves out the next one."""
MINUTES = 60
NAMES = ("rltuned", "slurmctld")
NIGHT_CODES = {None, 0, 3}
"""Of `tune`: none ran, done, and a record that allows no verdict."""


def read(path: Path) -> list[Row]:
    """The rows; none when there is no file. A last line that was cut is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    """Those of a kind: part, quarter, end."""
    return [row for row in rows if row["kind"] == kind]


def hours_of(rows: Sequence[Row]) -> float:
    """How far the day is."""
    return max((row["hour"] for row in of_kind(rows, "quarter")), default=0.0)


def judged(rows: Sequence[Row]) -> list[str]:
    """What is wrong, in words."""
    parts = of_kind(rows, "part")
    if not parts:
        return ["there are no rows"]
    asked, ends = parts[0]["asked"], of_kind(rows, "end")
    wrong = []
    if hours_of(rows) < asked["hours"]:
        wrong.append(f"{hours_of(rows):g} of {asked['hours']:g} hours: start it again")
    finished = {end["part"] for end in ends}
    wrong += [f"part {part['part']} was interrupted, so its numbers were not restored"
              for part in parts if part["part"] not in finished]  # fmt: skip
    return [*wrong, *_in_quarters(of_kind(rows, "quarter")), *_at_ends(ends)]


def _in_quarters(quarters: Sequence[Row]) -> Iterator[str]:
    excused = 0.0
    for row in quarters:
        at = f"hour {row['hour']:g}"
        if row["lost"]:
            yield f"{at}: numbers that the journal does not explain: {row['lost']}"
        if "restart" in row["happened"]:
            excused = row["hour"] + 0.25  # a try after a failed one may be in the next row
        for why, count in row["skipped"].items():
            if why in OURS:
                yield f"{at}: {count:g} cycles were skipped: {why}"
            elif row["hour"] > excused:
                yield f"{at}: {count:g} cycles without an answer, and slurmctld was not stopped"
    due = 15 * len(quarters)
    had = sum(row["cycles"] + sum(row["skipped"].values()) for row in quarters)
    if had < FEWEST_CYCLES * due:
        yield f"{had:g} cycles in {due} minutes"


def _at_ends(ends: Sequence[Row]) -> Iterator[str]:
    for end in ends:
        name = f"part {end['part']}"
        yield from (f"{name}, restore: {what}" for what in end["restored"])
        if end["reload_failed"]:
            yield f"{name}: {end['reload_failed']} reloads were refused"
        if end["tune"] not in NIGHT_CODES:
            yield f"{name}: tune ended with {end['tune']}: {end['tune_said']}"
        yield from (f"{name}: state {state}" for state in sorted(DOUBTS & set(end["states"])))


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown: what the day was, and the daemon beside slurmctld."""
    quarters, parts = of_kind(rows, "quarter"), of_kind(rows, "part")
    if not quarters:
        return []
    return [*_words(parts, quarters), "", "| | rltuned | slurmctld |", "|---|---|---|",
            *_lines(quarters)]  # fmt: skip


def _words(parts: Sequence[Row], quarters: Sequence[Row]) -> Iterator[str]:
    first = parts[0]
    asked, did, skipped = first["asked"], Counter[str](), Counter[str]()
    for row in quarters:
        did.update(row["did"])
        skipped.update(row["skipped"])
    yield f"{hours_of(quarters):g} hours in {len(parts)} part(s), asked: {asked}"
    yield f"commit {first['commit']}, {first['cores']} cores, {first['processor']}"
    yield f"waiting {_range(quarters, 'waiting')}, running {_range(quarters, 'running')}"
    yield f"users and nodes: {dict(did)}"
    writes, back = (sum(row[name] for row in quarters) for name in ("applied", "earlier"))
    yield f"{writes} writes; numbers at once {_range(quarters, 'numbers')}; an earlier one {back}"
    cycles, minutes = sum(row["cycles"] for row in quarters), 15 * len(quarters)
    yield f"{cycles} cycles in {minutes} minutes; skipped {dict(skipped)}"
    yield f"a cycle took {_range(quarters, 'cycle_s')} s (medians of quarters of an hour)"
    late = [row["late_s"] for row in quarters]
    yield (f"acts were late by {median(m for m, _ in late):g} s (median), at most "
           f"{max(m for _, m in late):g} s; a minute is {60 / asked['speed']:g} s")  # fmt: skip


def _range(quarters: Sequence[Row], name: str) -> str:
    values = [row[name] for row in quarters if row[name] is not None]
    return f"{min(values):g} to {max(values):g}"


def _lines(quarters: Sequence[Row]) -> Iterator[str]:
    hours = len(quarters) / 4
    for figure, words, per in (
        ("cpu_s", "processor, seconds per hour of the day", hours),
        ("rpcs", "RPCs per minute", MINUTES * hours),
    ):
        sums = [sum(row[name][figure] for row in quarters) for name in NAMES]
        yield f"| {words} | {' | '.join(f'{value / per:.1f}' for value in sums)} |"
    first, last = quarters[min(3, len(quarters) - 1)], quarters[-1]
    cells = [f"{first[name]['rss_mib']:g}; {last[name]['rss_mib']:g}" for name in NAMES]
    yield f"| memory after an hour; at the end, MiB | {' | '.join(cells)} |"
