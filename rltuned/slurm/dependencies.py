"""The dependency column of squeue: `afterok:61(unfulfilled),afterany:59_*(unfulfilled)`."""

import re
from functools import lru_cache
from typing import Final

from rltuned.domain.groups import Dependency
from rltuned.domain.units import JobId

_WHOLE: Final = frozenset({"afterok", "afterany", "after", "aftercorr"})
_EDGES: Final = _WHOLE | {"afternotok", "afterburstbuffer"}
_TERM: Final = re.compile(r"([a-z]+)((?::[^:()]*(?:\([^()]*\))?)*)(?:\([^()]*\))?", re.IGNORECASE)
_PARENT: Final = re.compile(r":([1-9][0-9]{0,9})(?:_(?:[0-9]+|\*))?(\+[0-9]+)?(?:\([^()]*\))?")
_LONGEST: Final = 64 * 1024


@lru_cache(maxsize=4096)
def parse_dependency(text: str) -> Dependency:
    """What a job waits for; empty = nothing. Never raises.

    A comma joins conditions that must all hold, a `?` such as are enough alone. What is not known
    costs `whole`, and no known edge. An array is one parent, whichever of its tasks is named.
    """
    parents: dict[JobId, str] = {}
    whole = "?" not in text and len(text) <= _LONGEST
    for term in re.split(r"[,?]", text[:_LONGEST]) if text else ():
        match = _TERM.fullmatch(term.strip())
        kind, names = (match[1].lower(), match[2]) if match else ("", "")
        found = list(_PARENT.finditer(names)) if kind in _EDGES else []
        whole &= kind in _WHOLE and bool(found) and "".join(m[0] for m in found) == names
        for one in found:
            parents.setdefault(JobId(int(one[1])), kind)
            whole &= one[2] is None
    return Dependency(tuple(sorted(parents.items())), whole)
