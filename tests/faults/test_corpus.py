"""Odd submissions and updates cost no more than the jobs that they are about.

In the ordinary run a sample; `make test-corpus` plays all of them on every release.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.clusters import slurm_or_skip
from tests.corpus import Odd, corpus, play, sample
from tests.lab import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]

WHOLE = os.environ.get("RLTUNED_TEST_CORPUS") == "whole"
SIZE = 20
CALM = (
    "bf_continue,sched_interval=2,bf_interval=10,bf_resolution=600,batch_sched_delay=1,"
    "bf_max_time=3"
)
"""With limits of years and a resolution of a second, Slurm's own backfill holds its locks for so
long that no command is answered."""


def test_no_odd_job_skips_a_cycle_or_keeps_restore_from_its_end(tmp_path: Path) -> None:
    slurm_or_skip()
    entries = corpus() if WHOLE else sample(40)
    found, taken, refused = list[str](), 0, 0
    for lab, start in _labs(entries):
        folder = tmp_path / str(start)
        folder.mkdir()
        some = entries[start : start + SIZE]
        batch = play(lab, folder, some)
        taken, refused = taken + batch.taken, refused + batch.refused
        found += [f"{_words(some)}: {why}" for why in batch.wrong]
        sys.stdout.write("\n".join((f"{start}: {batch}", *batch.unreadable, "")))
    reply = f"{len(entries)} entries, {taken} accepted, {refused} refused, {len(found)} faults"
    sys.stdout.write(f"{reply}\n")
    assert found == []
    assert taken > len(entries) // 3


def _labs(entries: Sequence[Odd]) -> Iterator[tuple[SlurmLab, int]]:
    """Where each batch begins, with a cluster for it; not every change of a node can be undone."""
    starts = range(0, len(entries), SIZE)
    ordinary = [s for s in starts if not any(e.undo for e in entries[s : s + SIZE])]
    with SlurmLab(scheduler=CALM) as lab:
        for start in ordinary:
            yield lab, start
    for start in (s for s in starts if s not in ordinary):
        with SlurmLab(scheduler=CALM) as lab:
            yield lab, start


def _words(entries: Sequence[Odd]) -> list[str]:
    return [" ".join(odd.words) for odd in entries]


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(set(corpus())) >= 300
    assert len(sample(40)) == 40
