"""Parsing what was formatted gives it back; garbage gives ValueError and nothing else."""

import math

from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain.cluster import expand_hosts
from rltuned.slurm.values import (
    Gres,
    Tasks,
    parse_epoch,
    parse_gres,
    parse_limit_s,
    parse_memory_mib,
    parse_tasks,
    parse_tres,
)
from tests.histories import format_limit

word = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)
gres = st.builds(
    Gres,
    name=st.sampled_from(["gpu", "shard", "mps", "nic"]),
    type=st.one_of(st.just(""), st.sampled_from(["p100", "a100_1g.5gb", "h100-80gb", "rtx_4090"])),
    count=st.integers(0, 10**9),
    detail=st.sampled_from(["", "S:0-1", "IDX:0-1,3", "IDX:N/A", "2/4,0/4"]),
)
step_range = st.tuples(st.integers(0, 10**6), st.integers(0, 5000), st.integers(1, 9)).map(
    lambda t: (t[0], t[0] + t[1] * t[2], t[2] if t[1] else 1)
)


def as_sinfo_prints(item: Gres) -> str:
    words = ":".join(w for w in (item.name, item.type, str(item.count)) if w)
    return words + (f"({item.detail})" if item.detail else "")


@given(st.lists(gres, max_size=5))
def test_gres(items: list[Gres]) -> None:
    assert list(parse_gres(",".join(map(as_sinfo_prints, items)))) == items


@given(
    st.dictionaries(
        st.sampled_from(["cpu", "mem", "node", "gres/gpu", "gres/gpu:p100", "license/a"]),
        st.integers(0, 10**12),
    )
)
def test_tres(amounts: dict[str, int]) -> None:
    text = ",".join(f"{k}={v}M" if k == "mem" else f"{k}={v}" for k, v in amounts.items())
    assert parse_tres(text) == amounts


@given(
    st.builds(
        Tasks,
        ranges=st.lists(step_range, min_size=1, max_size=6).map(tuple),
        throttle=st.one_of(st.none(), st.integers(0, 10_000)),
    )
)
def test_array_tasks(tasks: Tasks) -> None:
    throttle = "" if tasks.throttle is None else f"%{tasks.throttle}"
    assert parse_tasks(tasks.text + throttle) == tasks
    members = {n for first, last, step in tasks.ranges for n in range(first, last + 1, step)}
    assert len(members) <= tasks.count


@given(st.one_of(st.none(), st.just(math.inf), st.integers(1, 10**9).map(float)))
def test_time_limits(seconds: float | None) -> None:
    assert parse_limit_s(format_limit(seconds)) == seconds


@given(st.integers(0, 10**9))
def test_memory(mib: int) -> None:
    assert parse_memory_mib(f"{mib}M") == parse_memory_mib(str(mib)) == mib


slurmish = st.text(alphabet="gpu:p100=(S:0-1),[]%/KMGT.*|\n\x1fn", max_size=40)


@given(st.one_of(st.text(max_size=30), slurmish))
def test_garbage_is_refused_or_understood_never_worse(text: str) -> None:
    for parse in (
        expand_hosts,
        parse_gres,
        parse_tres,
        parse_tasks,
        parse_memory_mib,
        parse_limit_s,
        parse_epoch,
    ):
        try:
            parse(text)
        except ValueError:
            continue
