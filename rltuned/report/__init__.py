"""Pages from templates: the status page, the backtest's report, the evaluation's report; and what
is said of a job, as text.

In HTML every value is escaped, for names come from Slurm; only what is marked as markup, such as a
plot, is not. A page needs no script and no other server.
"""

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from rltuned.text import at_clock, between, counted, escaped, ordinal, span, trusted, when

if TYPE_CHECKING:  # a daemon whose page is not asked for does without it
    from jinja2 import Environment


@cache
def _pages() -> "Environment":
    from jinja2 import (  # noqa: PLC0415
        Environment,
        PackageLoader,
        StrictUndefined,
        select_autoescape,
    )

    pages = Environment(
        loader=PackageLoader("rltuned.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = (at_clock, between, counted, escaped, ordinal, span, trusted, when)
    pages.filters.update(fmt=format, **{word.__name__: word for word in words})
    return pages


def render(template: str, **values: object) -> str:
    """A page of a template in rltuned/report/templates."""
    return _pages().get_template(template).render(values)


def style(name: str) -> str:
    """A style sheet of rltuned/report/templates."""
    return (resources.files("rltuned.report") / "templates" / name).read_text("utf-8")
