"""The status page: one document as HTML that needs no script, no build and no other server."""

from typing import Any, Final

from rltuned.report import render, style

CSP: Final = (
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""No script at all, and style from /status.css only."""
REFRESH_S: Final = 15
LIVE: Final = "live"
"""The query that asks for a page which loads itself again and again."""
STYLE: Final = style("status.css")


def page(document: dict[str, Any], *, live: bool = False) -> str:
    """The whole page.

    Args:
        document: see web/status.
        live: it loads itself again every REFRESH_S; only when asked for, since that takes the place
            of who reads it by keyboard or ear.
    """
    return render("status.html", d=document, live=live, live_query=LIVE, refresh_s=REFRESH_S)
