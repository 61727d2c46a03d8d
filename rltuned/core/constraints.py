"""Constraints of jobs on the features of nodes, as far as a forecast plays them."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from rltuned.core.keepers import BoolArray
from rltuned.domain.cluster import Node

_WORD: Final = r"[A-Za-z0-9_.:+-]+"
_ALL: Final = re.compile(rf"{_WORD}(?:&{_WORD})*")
_ANY: Final = re.compile(rf"{_WORD}(?:\|{_WORD})*")
_CONSTRAINT: Final = "constraint="
_LICENCES: Final = "licenses="


def why_outside(outside: Sequence[str]) -> str:
    """Why a job that asks for more than GPUs, CPUs and memory is not played; empty = it is."""
    for words in outside:
        value = words.partition("=")[2]
        if words.startswith(_LICENCES):
            return f"it needs licences ({value}), and how many are free is not known"
        if not words.startswith(_CONSTRAINT):
            return f"it asks for what is not modelled ({words})"
        if not _sets(value):
            return f"its constraint is not understood ({value}): only a, a&b and a|b are"
    return ""


def allowed(outside: Sequence[str], nodes: Sequence[Node]) -> BoolArray:
    """(N,) nodes that a job's constraint accepts; one that is not understood accepts all."""
    found = np.ones(len(nodes), dtype=bool)
    for words in outside:
        sets = _sets(words.removeprefix(_CONSTRAINT)) if words.startswith(_CONSTRAINT) else []
        if sets:
            found &= [any(one.issubset(node.features) for one in sets) for node in nodes]
    return found


def _sets(text: str) -> list[frozenset[str]]:
    """Features of which a node needs all of one set; empty = not understood.

    Matching OR, counts and parentheses choose nodes together, which a lane does not.
    """
    if _ALL.fullmatch(text):
        return [frozenset(text.split("&"))]
    return [frozenset({one}) for one in text.split("|")] if _ANY.fullmatch(text) else []
