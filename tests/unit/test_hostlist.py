"""Slurm's hostlists."""

import pytest

from rltuned.domain.cluster import expand_hosts


def test_names() -> None:
    assert expand_hosts("p[1-3,07],q,r[1-2]x") == ("p1", "p2", "p3", "p07", "q", "r1x", "r2x")
    assert expand_hosts("n[08-11]") == ("n08", "n09", "n10", "n11")
    assert expand_hosts("r[1-2]n[1,3]") == ("r1n1", "r1n3", "r2n1", "r2n3")


@pytest.mark.parametrize(
    "bad",
    ["", "a,,b", "a[", "a[x]", "a[3-1]", "a[1-]", "a]", "a[[1]]", "p[1-99999999]", "b[-1]", "c[]"],
)
def test_what_is_none_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="hostlist"):
        expand_hosts(bad)


def test_too_many_names_are_refused() -> None:
    assert len(expand_hosts("a[1-10]", most=10)) == 10
    for many in ("a[1-11]", "a[1-5]b[1-3]", "a[1-9],b[1-9]"):
        with pytest.raises(ValueError, match="hostlist"):
            expand_hosts(many, most=10)
