"""Slurm's notations: what was formatted is read again, garbage is a ValueError and nothing else."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain import cluster
from rltuned.slurm.values import (
    Gres,
    Tasks,
    absent,
    asked_moment,
    expand_hosts,
    pack_tasks,
    parse_count,
    parse_epoch,
    parse_gres,
    parse_limit_s,
    parse_memory_mib,
    parse_tasks,
    parse_tres,
)
from tests.histories import format_limit

READ: list[tuple[Callable[[str], object], dict[str, object]]] = [
    (expand_hosts, {
        "p1": ("p1",),
        "p[1-2],k1": ("p1", "p2", "k1"),
        "n[008-010,12]": ("n008", "n009", "n010", "n12"),
        "p[1-3,07],q,r[1-2]x": ("p1", "p2", "p3", "p07", "q", "r1x", "r2x"),
        "r[1-2]n[1,3]": ("r1n1", "r1n3", "r2n1", "r2n3"),
        "gpu-a.lan,x[1]-ib": ("gpu-a.lan", "x1-ib"),
        "(null)": (), "": (), "None assigned": (),
    }),
    (lambda text: list(parse_gres(text)), {
        "gpu:2": [Gres("gpu", "", 2)],
        "gpu": [Gres("gpu", "", 1)],
        "gpu:p100": [Gres("gpu", "p100", 1)],
        "gpu:p100:4": [Gres("gpu", "p100", 4)],
        "gpu:a100_1g.5gb:2": [Gres("gpu", "a100_1g.5gb", 2)],
        "gpu:p100:4(S:0-1)": [Gres("gpu", "p100", 4, "S:0-1")],
        "gpu:p100:3(IDX:0-1,3),shard:0": [
            Gres("gpu", "p100", 3, "IDX:0-1,3"), Gres("shard", "", 0)],
        "gpu:m40:0(IDX:N/A)": [Gres("gpu", "m40", 0, "IDX:N/A")],
        "gpu:(null):2(IDX:0-1)": [Gres("gpu", "", 2, "IDX:0-1")],
        "gpu:t4:2,shard:t4:8(4/4,0/4)": [Gres("gpu", "t4", 2), Gres("shard", "t4", 8, "4/4,0/4")],
        "gres:gpu:p100:4": [Gres("gpu", "p100", 4)],
        "gres/gpu:p100=2": [Gres("gpu", "p100", 2)],
        "gres/gpu:2,gres/shard:1": [Gres("gpu", "", 2), Gres("shard", "", 1)],
        "gres/gpu=1": [Gres("gpu", "", 1)],
        "bandwidth:lustre:no_consume:4G": [Gres("bandwidth", "lustre", 4 * 1024**3)],
        "(null)": [], "N/A": [],
    }),
    (parse_tres, {
        "cpu=6,mem=62.50G,node=1,billing=6,gres/gpu=2,gres/gpu:p100=2": {
            "cpu": 6, "mem": 64_000, "node": 1, "billing": 6, "gres/gpu": 2, "gres/gpu:p100": 2},
        "N/A": {},
    }),
    (parse_memory_mib, {
        "0": 0, "700": 700, "500M": 500, "3G": 3072, "1.50G": 1536, "2T": 2_097_152,
        "1K": 1,  # rounded up, not lost
    }),
    (parse_count, {"2K": 2048}),
    (parse_limit_s, {
        "5:00": 300.0, "1:00:00": 3600.0, "1-00:00:00": 86_400.0, "2-12": 216_000.0, "30": 1800.0,
        "UNLIMITED": math.inf, "infinite": math.inf,
        "n/a": None, "NOT_SET": None, "Partition_Limit": None,
    }),
    (parse_epoch, {
        "1795246314": 1_795_246_314.0, "N/A": None, "0": None, "9" * 11: 99_999_999_999.0}),
    (lambda text: (t := parse_tasks(text)) and (t.count, t.throttle, t.text, t.named), {
        "[0-9,12,20-30:5%3]": (14, 3, "0-9,12,20-30:5", "0-9,12,20,25,30"),
        "0-6:2,8-9,11": (7, None, "0-6:2,8-9,11", "0,2,4,6,8-9,11"),  # no steps for scontrol
    }),
    (absent, {
        **dict.fromkeys(("", "(null)", "N/A", "n/a", "None", "Unknown"), True), "gpu": False}),
]  # fmt: skip
REFUSED: list[tuple[Callable[[str], object], tuple[str, ...], str]] = [
    (expand_hosts, (
        "p[1-2", "p1]", "p[2-1]", "p[a]", "p[]", "p1,", "a,,b", "a[1-]", "a[[1]]", "b[-1]",
        "p[1-99999999]", "a[1-2000]b[1-2000]",
    ), "hostlist|brackets"),
    (lambda text: cluster.expand_hosts(text, most=10),
     ("", "a[1-11]", "a[1-5]b[1-3]", "a[1-9],b[1-9]"), "hostlist"),
    (lambda text: list(parse_gres(text)),
     ("gpu:p100:4(IDX:0", "gpu)2(", ":2", "gpu=x", "gpu:2,,", "(a)"), "GRES|brackets|amount"),
    (parse_tres, ("cpu", "=2", "cpu=x", "mem=1X"), "TRES|amount"),
    (parse_memory_mib, ("", "M", "-1M", "1..0G", "1e3", "500 M", "٣M"), "no amount"),
    (parse_limit_s, ("x", "1:2:3:4", "-5:00"), "time limit"),
    (parse_epoch, ("2026-11-21T07:30:36", "9" * 12), "Unix time"),
    (parse_tasks, ("0-9...", "", "a", "3-1", "1%", "1-2:0", "0-9%x"), "array tasks"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "texts"), READ)
def test_what_slurm_prints_is_read(read: Callable[[str], object], texts: dict[str, object]) -> None:
    assert {text: read(text) for text in texts} == texts


@pytest.mark.parametrize(("read", "texts", "why"), REFUSED)
def test_what_slurm_cannot_mean_is_refused(
    read: Callable[[str], object], texts: tuple[str, ...], why: str
) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=why):
            read(text)


@pytest.mark.parametrize("text", ["99999999d", "1969-01-01"])
def test_a_moment_before_1970_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="lies before 1970"):
        asked_moment(text, 1.7e9)


def test_as_many_names_as_are_wanted_and_packed_tasks() -> None:
    assert len(cluster.expand_hosts("a[1-10]", most=10)) == 10
    assert pack_tasks([3, 1, 2, 7]).text == "1-3,7"


step_range = st.tuples(st.integers(0, 10**6), st.integers(0, 5000), st.integers(1, 9)).map(
    lambda t: (t[0], t[0] + t[1] * t[2], t[2] if t[1] else 1)
)


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
