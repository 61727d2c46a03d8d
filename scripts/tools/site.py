"""A hook of mkdocs: links that leave docs/ lead to the repository, where that is known."""

import os
import re
from typing import Any

_OUTSIDE = re.compile(r"\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with links that work; without RLTUNED_REPOSITORY what lies outside is no link."""
    base = os.environ.get("RLTUNED_REPOSITORY", "").rstrip("/")

    def replaced(found: re.Match[str]) -> str:
        return f"]({base}/{found[1].removeprefix('../')})" if base else "](#)"

    return _OUTSIDE.sub(replaced, markdown)
