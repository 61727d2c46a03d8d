"""Check the English of the documents and of the package's texts: part of `make lint`.

    python -m scripts.tools.prose [FILE ...]

Reads README.md, docs/**/*.md and the modules of rltuned/ and scripts/ unless files are given. Code,
formulas, link targets and HTML are left out. The strings of a Python file are checked for words.
Exit code 1: at least one problem, one line each.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MOST_WORDS: Final = 40
"""The longest sentence."""
WORDS: Final = {
    "use 'fix' or 'remedy'": r"mend|mends|mended|mending",
    "use 'again'": r"anew|afresh|as ever",
    "use 'predict'": r"fore(?:tell|tells|told|telling)",
    "use 'damaged'": r"spoilt|spoiled",
    "use 'random'": r"by lot|at haphazard",
    "use 'hostile'": r"ill will|for good and for ill",
    "old word": r"whereof|thereof|therein|hitherto|nought|amid|betwixt|foremost|straightaway",
    "use 'restore'": r"(?:gives?|gave|given|giving)\s+back",
    "use 'test period' or 'validation'": r"exams?",
    "use 'training period'": r"lessons?",
    "use 'trace', 'cluster' or 'problem'": r"grounds?",
    "use 'fit', 'train' or 'learn'": r"teach|teaches|teachers?|teaching|taught",
}
DOCUMENTS: Final = {"use 'poll' or 'cycle'": r"(?:last|first|each|every|one|two|between) looks?"}
"""What only documents are checked for."""


def _compiled(rules: dict[str, str]) -> dict[str, re.Pattern[str]]:
    return {
        rule: re.compile(rf"(?<![\w'/-])(?:{words})(?![\w'-])", re.IGNORECASE)
        for rule, words in rules.items()
    }


_WORDS: Final = _compiled(WORDS)
_DOCUMENTS: Final = _compiled(DOCUMENTS)
_OPENINGS: Final = re.compile(
    r"(?:Of (?:the|every|each|a|an|all|what|such|two|its|it|them)\b|Nor\b|So (?:is|are|do|does)\b|"
    r"(?:Here|There) (?:stands?|comes?|lies|goes)\b|Seen as\b|Asked of\b|Away with\b|"
    r"(?:Beside|Before|Behind|Above|Below|Under) (?:\w+ ){1,4}(?:stands?|stood|lies)\b|"
    r"Only (?:when|where|then)\b[^,]* (?:is|are|does)\b)"
)
"""How an inverted sentence begins."""
_FENCE: Final = re.compile(r"^(```|\$\$)[^\n]*\n.*?^\1 *$", re.MULTILINE | re.DOTALL)
_HIDDEN: Final = re.compile(
    r"<!--.*?-->|``.+?``|`[^`]*`|\$[^$\n]+\$|(?<=\])\([^()\s]*\)|<[^>\n]+>", re.DOTALL
)
_BREAK: Final = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*>|#]|\d+\.)\s)|(?<=\|)|\n(?=\|)")
_PROGRAMS: Final = r"rltuned|s(?:lurm|q|acct|prio|info|diag|control|share)|py|pip|torch"
"""Names that begin a sentence in lower case."""
_END: Final = re.compile(
    rf"(?<=[.!?])[)\"*_]*\s+(?=[\"(*_\[]*(?:[A-Z0-9`\\•]|(?:{_PROGRAMS})))|;\s+(?=\d = )"
)
"""Where a sentence ends; each code of a list of exit codes counts by itself."""

_RECORDS = ROOT / "scripts" / "studies" / "results"
"""Long tables: their words alone are checked."""
_EXEMPT = {ROOT / "rltuned/core/features.py", Path(__file__).resolve()}
"""The digest of every bundle covers the words of the feature table; this file names the words."""


def problems(text: str) -> Iterator[tuple[int, str]]:
    """Line number and rule for each problem of a Markdown text."""
    plain = _prose(text)
    yield from words(plain)
    yield from words(plain, _DOCUMENTS)
    at = 0
    for piece in _BREAK.split(plain):
        start = plain.index(piece, at)
        at = start + len(piece)
        where = start
        for sentence in _END.split(piece):
            where = plain.index(sentence, where)
            line = plain.count("\n", 0, where + len(sentence) - len(sentence.lstrip())) + 1
            count = len(re.findall(r"[\w•][^\s|]*", sentence))
            if count > MOST_WORDS:
                yield line, f"{count} words in a sentence, at most {MOST_WORDS}"
            opening = sentence.strip().lstrip("-*># \n_")
            if piece[-1:] != "|" and (match := _OPENINGS.match(opening)):
                yield line, f"inverted sentence: {match[0]!r}"


def words(plain: str, rules: dict[str, re.Pattern[str]] = _WORDS) -> Iterator[tuple[int, str]]:
    """Line number and rule for each banned word."""
    for rule, pattern in rules.items():
        for match in pattern.finditer(plain):
            yield plain.count("\n", 0, match.start()) + 1, f"{match[0]!r}: {rule}"


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Line number and rule for each banned word in the strings of a Python module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            plain = re.sub(r"`[^`]*`", "•", node.value)
            yield from ((node.lineno + line - 1, rule) for line, rule in words(plain))


def main(given: list[str]) -> int:
    """Check the files; 1 when there is a problem."""
    files = [Path(name) for name in given] or [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted(path for path in (ROOT / "rltuned").rglob("*.py") if path not in _EXEMPT),
        *sorted(path for path in (ROOT / "scripts").rglob("*.py") if path not in _EXEMPT),
        *sorted(_RECORDS.glob("*.md")),
    ]
    found = 0
    for path in files:
        check = strings if path.suffix == ".py" else problems
        text = path.read_text()
        for line, rule in sorted(words(_prose(text)) if path.parent == _RECORDS else check(text)):
            found += 1
            print(f"{path.resolve().relative_to(ROOT)}:{line}: {rule}")
    return 1 if found else 0


def _prose(text: str) -> str:
    """Without code, formulas and link targets, line by line as it was."""
    return _HIDDEN.sub(lambda m: "•" + _blank(m), _FENCE.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    """As many line ends as the match has."""
    return "\n" * match[0].count("\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
