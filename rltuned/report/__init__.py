"""HTML pages from templates: the status page, the backtest's report, the evaluation's report.

Every value is escaped, for names come from Slurm; only what is marked as markup, such as a plot, is
not. A page needs no script and no other server.
"""

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from rltuned.text import between, span, when

if TYPE_CHECKING:  # a daemon whose page is not asked for does without it
    from jinja2 import Environment


@cache
def _pages() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    pages = Environment(
        loader=PackageLoader("rltuned.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(fmt=format, span=span, when=when, between=between)
    return pages


def render(template: str, **values: object) -> str:
    """A page of a template in rltuned/report/templates."""
    return _pages().get_template(template).render(values)


def style(name: str) -> str:
    """A style sheet of rltuned/report/templates."""
    return (resources.files("rltuned.report") / "templates" / name).read_text("utf-8")
