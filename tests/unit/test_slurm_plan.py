"""The parameters of sched/backfill, from a site's text or one by one."""

import pytest

from rltuned.core.slurm_plan import (
    NAMES,
    Parameters,
    parameters_text,
    planned_limits_s,
    read_parameters,
    with_parameter,
)


def test_a_sites_text_is_read_as_slurm_reads_it() -> None:
    text = "bf_continue,bf_max_job_test=1000,bf_window=x,bf_busy_nodes,bf_licenses,max_rpc_cnt=9"
    found, others = read_parameters(text)
    assert found == Parameters(bf_max_job_test=1000, bf_busy_nodes=1)
    assert others == ("bf_window=x", "bf_licenses")
    assert read_parameters(parameters_text(found)) == (found, ())
    assert read_parameters("") == (Parameters(), ())


@pytest.mark.parametrize(
    ("release", "newer", "own_ends"),
    [
        ((22, 5, 8), 0, 0),
        ((24, 5), 0, 0),
        ((24, 11, 5), 1, 0),
        ((25, 5, 0), 1, 0),
        ((25, 5, 1), 1, 1),
        ((26, 5, 3), 1, 1),
        (None, 1, 1),
    ],
)
def test_what_a_release_plays(release: tuple[int, ...] | None, newer: int, own_ends: int) -> None:
    found, _ = read_parameters("", release)
    assert (found.ends_up, found.looks_on, found.own_ends) == (newer, newer, own_ends)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bf_max_time=30", "'bf_max_time' is not played; there are bf_interval, "),
        ("ends_up=0", "'ends_up' is not played"),
        ("bf_window=0", "bf_window must be a whole number from 1 to 43200, not '0'"),
        ("bf_interval", "bf_interval must be a whole number from 1 to 10800, not ''"),
        ("bf_interval=-2", "from 1 to 10800, not '-2'"),
        ("bf_max_job_test=1e3", "from 1 to 1000000, not '1e3'"),
        ("bf_busy_nodes=2", "from 0 to 1, not '2'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        with_parameter(Parameters(), text)
    assert why in str(caught.value)


def test_every_name_can_be_given() -> None:
    for name in NAMES:
        assert getattr(
            with_parameter(
                Parameters(), f"{name}=1" if name != "bf_node_space_size" else f"{name}=2"
            ),
            name,
        )
    assert with_parameter(Parameters(), "bf_interval=-1").bf_interval == -1


def test_limits_are_whole_minutes() -> None:
    assert planned_limits_s([60.0, 61.0, 0.5, float("inf")]).tolist() == [60, 120, 60, 31_536_000]
