"""The first call of compiled code compiles it: minutes on a busy machine, then never again."""

from pathlib import Path

import pytest

COMPILING_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(COMPILING_S))
