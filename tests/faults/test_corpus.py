"""Odd submissions and updates cost no more than the jobs that they are about.

In the ordinary run a sample; `make test-corpus` plays all of them on every release.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import slurm_or_skip
from tests.corpus import Odd, corpus, play, sample
from tests.lab import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]

WHOLE = os.environ.get("RLTUNED_TEST_CORPUS") == "whole"
SIZE = 20


def test_no_odd_job_skips_a_cycle_or_keeps_restore_from_its_end(tmp_path: Path) -> None:
    slurm_or_skip()
    entries = corpus() if WHOLE else sample(40)
    found, taken, refused = list[str](), 0, 0
    with SlurmLab() as lab:
        for start in range(0, len(entries), SIZE):
            folder = tmp_path / str(start)
            folder.mkdir()
            some = entries[start : start + SIZE]
            batch = play(lab, folder, some)
            taken, refused = taken + batch.taken, refused + batch.refused
            found += [f"{_words(some)}: {why}" for why in batch.wrong]
            sys.stdout.write("\n".join((f"{start}: {batch}", *batch.unreadable, "")))
    told = f"{len(entries)} entries, {taken} taken by Slurm, {refused} refused, {len(found)} faults"
    sys.stdout.write(f"{told}\n")
    assert found == []
    assert taken > len(entries) // 3


def _words(entries: tuple[Odd, ...]) -> list[str]:
    return [" ".join(odd.words) for odd in entries]


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(set(corpus())) >= 300
    assert len(sample(40)) == 40
