"""The check of the documents' English finds what it is there for, and nothing in code."""

import pytest

from scripts.tools.prose import MOST_WORDS, main, problems, strings


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Each line comes with its mend.", "'mend': use 'fix' or 'remedy'"),
        ("The job starts anew.", "'anew': use 'again'"),
        ("The order is as ever.", "'as ever': use 'again'"),
        ("The model foretells run times.", "'foretells': use 'predict'"),
        ("The number is given\nback.", "'given\\nback': use 'restore'"),
        ("It passes the exam.", "'exam': use 'test period' or 'validation'"),
        ("The lesson ends.", "'lesson': use 'training period'"),
        ("Six grounds.", "'grounds': use 'trace', 'cluster' or 'problem'"),
        ("Earlier jobs teach it.", "'teach': use 'fit', 'train' or 'learn'"),
        ("A job that ran at the last look.", "'last look': use 'poll' or 'cycle'"),
        ("It runs. Of every block it is asked whether it helps.", "inverted sentence: 'Of every'"),
        ("- Nor does it write.", "inverted sentence: 'Nor'"),
        ("## Away with it", "inverted sentence: 'Away with'"),
        ("Before the header stands a block.", "inverted sentence: 'Before the header stands'"),
        ("a " * (MOST_WORDS + 1) + ".", f"{MOST_WORDS + 1} words in a sentence, at most 40"),
    ],
)
def test_bad_english_is_found(text: str, rule: str) -> None:
    assert [found for _, found in problems(text)][:1] == [rule]


@pytest.mark.parametrize(
    "text",
    [
        "We measured it, you are told, and nobody else writes to our queue.",
        "```sh\nthe lesson\n```\n",
        "The label `lesson`, a [link](exam.md) and I/O.",
        "| changed by `an exam` | " + "word " * 30 + "| " + "word " * 30 + "|",
        "word " * 30 + ". rltuned " + "word " * 30 + ".",
        "The formula $lesson = exam$ holds.\n\n$$\nexam\n$$\n",
    ],
)
def test_good_english_and_code_pass(text: str) -> None:
    assert list(problems(text)) == []


def test_lines_are_named() -> None:
    text = "Good.\n\n```sh\nx\ny\n```\n\nThe jobs\nteach it.\n"
    assert list(problems(text)) == [(9, "'teach': use 'fit', 'train' or 'learn'")]


def test_strings_of_code_are_checked_for_words() -> None:
    source = 'exam = 1\n\n\ndef f(exam):\n    """What an exam is."""\n    return "we"\n'
    assert [line for line, _ in strings(source)] == [5]


def test_the_readme_the_documents_and_the_code_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main([]), capsys.readouterr().out) == (0, "")
