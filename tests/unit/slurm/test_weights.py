"""The weights of Slurm's own order, from recorded answers and spoilt ones."""

import math
from pathlib import Path

import pytest

from rltuned.errors import SnapshotError
from rltuned.slurm.site import parse_config
from rltuned.slurm.weights import Weights, read_weights

DATA = Path(__file__).resolve().parents[2] / "data" / "slurm"
RELEASES = ("22.05", "24.11", "26.05")


def config(release: str = "22.05") -> dict[str, str]:
    return parse_config((DATA / release / "config.txt").read_text())


@pytest.mark.parametrize("release", RELEASES)
def test_of_every_release(release: str) -> None:
    found = read_weights(config(release))
    assert found == Weights(
        basic=False, age=10_000, size=1_000, partition=1_000, max_age_s=86_400.0
    )


def test_first_come_first_served() -> None:
    assert read_weights({"PriorityType": "priority/basic"}) == Weights(basic=True)


def test_what_counts_besides_is_named() -> None:
    found = read_weights(
        config()
        | {
            "PriorityWeightFairShare": "5000",
            "PriorityWeightQOS": "0",
            "PriorityWeightTRES": "CPU=1000,GRES/gpu=3000",
            "PriorityFlags": "SMALL_RELATIVE_TO_TIME",
            "PrioritySiteFactorPlugin": "site_factor/ours",
            "PriorityFavorSmall": "Yes",
            "PriorityMaxAge": "UNLIMITED",
        }
    )
    assert found.others == (
        "FairShare 5000",
        "TRES CPU=1000,GRES/gpu=3000",
        "flags SMALL_RELATIVE_TO_TIME",
        "site factor of site_factor/ours",
    )
    assert (found.favor_small, found.max_age_s) == (True, math.inf)


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        ({"PriorityType": "priority/ours"}, "'priority/ours' is not known"),
        ({"PriorityWeightAge": "many"}, "PriorityWeightAge: 'many' is no number"),
        ({"PriorityMaxAge": "soon"}, "PriorityMaxAge: 'soon' is no time limit"),
        ({"PriorityMaxAge": ""}, "PriorityMaxAge: '' is no time"),
    ],
)
def test_unknown_is_not_zero(spoilt: dict[str, str], why: str) -> None:
    with pytest.raises(SnapshotError, match=why):
        read_weights(config() | spoilt)


@pytest.mark.parametrize("key", ["PriorityType", "PriorityWeightJobSize", "PriorityFavorSmall"])
def test_a_missing_key_is_named(key: str) -> None:
    lacking = {k: v for k, v in config().items() if k != key}
    with pytest.raises(SnapshotError, match=f"no {key} in the answer"):
        read_weights(lacking)
