"""No file ends a command with a traceback, and a row that is wrong costs at most itself.

RLTUNED_MUTATIONS: how many files are tried (`make fuzz`: 10,000); RLTUNED_SEED: which ones.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.mutations import ROWS, Sample, mutated, samples, tried

COUNT = int(os.environ.get("RLTUNED_MUTATIONS", "300"))
SEED = int(os.environ.get("RLTUNED_SEED", "1"))
FEWEST = ROWS - 2
"""Jobs that are left: a row that takes another's name costs itself, and so may that other."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    return list(samples(tmp_path_factory.mktemp("made")))


def test_every_good_file_is_read_whole(corpus: list[Sample], tmp_path: Path) -> None:
    for number, sample in enumerate(corpus):
        place = tmp_path / str(number)
        place.mkdir()
        assert tried(sample, sample.text, place) in {None, ROWS}, sample.name


@pytest.mark.timeout(3_600)
def test_a_wrong_file_costs_at_most_what_is_wrong(corpus: list[Sample], tmp_path: Path) -> None:
    failures: list[str] = []
    for number in range(COUNT):
        rng = np.random.default_rng((SEED, number))
        sample = corpus[int(rng.integers(len(corpus)))]
        place = tmp_path / sample.name.replace(".", "-")
        place.mkdir(exist_ok=True)
        text, in_a_row = mutated(sample, rng)
        try:
            found = tried(sample, text, place)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            failures.append(f"{number} {sample.name}: {type(error).__name__}: {error}"[:300])
            continue
        if in_a_row and sample.use_counts and not (isinstance(found, int) and found >= FEWEST):
            failures.append(f"{number} {sample.name}: {found}"[:300])
    assert not failures, f"{len(failures)} of {COUNT}:\n" + "\n".join(failures[:20])
