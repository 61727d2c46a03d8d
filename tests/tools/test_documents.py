"""Documents point at what exists: pages, headings, commands, options, make targets, figures."""

import re
from pathlib import Path

import pytest

from rltuned import __version__
from rltuned.cli import COMMANDS
from scripts.studies import figures, trust
from scripts.studies.forecasts import rows as forecast_rows
from scripts.tools.docs import PAGES as GENERATED
from tests.named_commands import command_of, every_command, typed_lines
from tests.needs import program
from tests.pages import PAGES, ROOT, anchors, blocks, differs, links, name_of, session
from tests.programs import ran

README = (ROOT / "README.md").read_text()
QUICKSTART = (ROOT / "docs" / "install.md").read_text()
RESULTS = (ROOT / "docs" / "results.md").read_text()
BY_LIMITS = (ROOT / "scripts" / "studies" / "results" / "delays.md").read_text()
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""The changelog also tells of what is no more."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    lost = []
    for link in sorted(links(page.read_text())):
        name, _, anchor = link.partition("#")
        if "://" in name or name.startswith("mailto:"):
            continue
        target = page.parent / name if name else page
        named = anchor and target.suffix == ".md"
        if not target.exists() or (named and anchor not in anchors(target.read_text())):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", PRESENT, ids=name_of)
def test_every_named_page_exists(page: Path) -> None:
    named = set(re.findall(r"\bdocs/[\w/-]+\.md\b", page.read_text()))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("page", PRESENT, ids=name_of)
def test_every_named_command_exists(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"`rltuned ([a-z]+)", text))
    for block in blocks(text, "sh", "console"):
        named |= set(re.findall(r"^(?:[#$] )?(?:\S*/)?rltuned ([a-z]+)", block, re.MULTILINE))
    assert sorted(named - set(COMMANDS)) == []


@pytest.mark.parametrize("page", PRESENT, ids=name_of)
def test_every_named_option_exists(page: Path) -> None:
    unknown = []
    for line in typed_lines(page.read_text()):
        command, words = command_of(line)
        if command is None or command.children:
            continue
        known = {name for p in command.parameters for name in p.names} | {"--help"}
        options = (w.partition("=")[0] for w in words if re.match(r"--[a-z]", w))
        unknown += [f"{command.path} {one}" for one in options if one not in known]
    assert unknown == []


@pytest.mark.parametrize("name", GENERATED)
def test_every_generated_page_is_fresh(name: str) -> None:
    assert (ROOT / name).read_text() == GENERATED[name](), "run: make docs"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "man").iterdir()), ids=name_of)
def test_every_manual_page_is_well_formed(page: Path) -> None:
    program("mandoc")
    done = ran("mandoc", "-T", "lint", "-W", "warning", str(page), code=None)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_page_is_found_from_the_index() -> None:
    """Links are followed from docs/README.md; reasons (adr/) are found through their folder."""
    found, to_read = set[Path](), [ROOT / "docs" / "README.md"]
    while to_read:
        page = to_read.pop()
        if page in found or page.suffix != ".md" or not page.exists():
            continue
        found.add(page)
        names = (link.partition("#")[0] for link in links(page.read_text()))
        to_read += [(page.parent / name).resolve() for name in names if name]
    pages = set((ROOT / "docs").glob("*.md"))
    assert sorted(name_of(page) for page in pages - found) == []


def test_every_promise_of_json_is_listed() -> None:
    text = (ROOT / "docs" / "interfaces.md").read_text()
    listed = set(re.findall(r"`([a-z ]+)` \(\d+\.\d+\.\d+\)", text))
    have = {
        path.removeprefix("rltuned ")
        for path, command in every_command().items()
        if any("--json" in one.names for one in command.parameters)
    }
    assert listed == have


def test_the_citation_is_of_this_release() -> None:
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in cited
    assert "10.1145/3772052.3772257" in cited


def test_the_site_has_every_page_once() -> None:
    shown = re.findall(r"^ +- (?:\w+: )?([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(shown) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_hosted_ci_runs_what_a_developer_runs() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert "- run: .ci/run\n" in workflow
    targets = {name for line in re.findall(r"run: make (.*)", workflow) for name in line.split()}
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets <= made


def test_what_the_readme_shows_is_run() -> None:
    """`make` targets by .ci/run and the test below; the rest in the booted machine."""
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    booted = {step.command for step in session(QUICKSTART)}
    for step in session(README):
        if step.command.startswith("make "):
            assert set(step.command.split()[1:]) <= targets
        else:
            assert step.command in booted
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_make_demo() -> None:
    """-o: the environment that runs this test is the one that it is to use, however old."""
    done = ran("make", "-o", ".venv/.ready", "demo", cwd=ROOT)
    assert "on average under Slurm alone" in done.stdout


def test_the_pages_show_the_figures_of_the_recorded_runs() -> None:
    """docs/data/delays.jsonl holds the runs."""
    shown = [(README, figures.short_table()), (RESULTS, figures.table())]
    shown += [
        (BY_LIMITS, rows()) for rows in (figures.frontier, figures.by_limits, figures.hostile)
    ]
    for text, rows in shown:
        found = "\n".join(rows)
        assert found.count("\n") > 6
        assert found in text


def test_the_figures_of_trust_are_those_of_the_recorded_runs() -> None:
    page = (ROOT / "scripts/studies/results/trust.md").read_text()
    ratios = trust.ratios_of(trust.rows_of(trust.RESULTS))
    for part in (trust.frontier, trust.by_trace, trust.verdicts):
        assert "\n".join(part(ratios)) in page


def test_the_figures_of_forecasts_are_those_of_the_recorded_runs() -> None:
    assert "\n".join(forecast_rows()) in (ROOT / "docs" / "how-it-works.md").read_text()


def test_the_readme_is_short() -> None:
    assert len(README.split()) < 1_000


def test_sessions_are_parted_from_what_comes_out() -> None:
    text = "```console\n# one \\\n    more\nprinted ...\n$ two\n# cat file\n# a comment\n```\n"
    text = text.replace("$ two\n# cat", "$ two\n```\n```console\n# cat")
    steps = list(session(text))
    assert [(s.command, s.shown) for s in steps] == [
        ("one more", ("printed ...",)),
        ("two", ()),
        ("cat file", ("# a comment",)),
    ]
    assert [s.is_root for s in steps] == [True, False, True]
    assert [s.line for s in steps] == [2, 5, 8]
    with pytest.raises(ValueError, match="begins with a command"):
        list(session("```console\nprinted\n```\n"))


def test_what_comes_out_is_compared() -> None:
    assert differs((), "anything") == ""
    assert differs(("a ... c", "...", "z"), "a b c\nd\ne\nz\n") == ""
    assert differs(("a", "c"), "a\nb\n") == "c"
    assert differs(("a",), "a\nb\n") == "there is more than what is shown"
    assert differs(("# gpu*  1",), "# gpu*  1\n") == ""


def test_anchors_are_named_as_github_does() -> None:
    text = "# A `code`, and more!\n## [Link](x.md) it\n## Same\n## Same\n```sh\n# no heading\n```\n"
    assert anchors(text) == {"a-code-and-more", "link-it", "same", "same-1"}
