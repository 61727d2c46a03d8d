"""The claims of the RLTune paper beside stored rows: the rule of the word, and what it is of."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from scripts.studies import GROUPS, data_of
from scripts.studies.paper import bases, claims
from scripts.studies.paper.claimed import TABLE_8, TABLE_9
from scripts.studies.paper.claims import PLANNERS, SLURM, Claim, Group, Ours, hull, of_other_jobs
from scripts.studies.runner import known, study_of
from tests.builders import sure


def cell(low: float, high: float, claim: float, metric: str = "wait", bad: str = "") -> Claim:
    ours = Ours((low + high) / 2, low, high, 1, ("a row",))
    return Claim("Table 1", "somewhere", metric, claim, ours, bad)


@pytest.mark.parametrize(
    ("low", "high", "claim", "word"),
    [
        (-0.5, -0.4, -0.3, "better"),
        (-0.5, -0.4, -0.45, "reproduced"),
        (-0.5, -0.4, -0.6, "not reproduced"),
        (-0.1, 0.1, -0.05, "reproduced"),
        (0.1, 0.2, 0.3, "better"),
        (0.1, 0.2, 0.0, "not reproduced"),
    ],
)
def test_the_word_is_said_by_the_interval(low: float, high: float, claim: float, word: str) -> None:
    assert cell(low, high, claim).word == word
    assert cell(-high, -low, -claim, "utilisation").word == word, "more of it is better"


def test_what_contradicts_itself_is_neither_reproduced_nor_beaten() -> None:
    one = cell(-0.5, -0.4, -0.45, bad="it says so twice, with two figures")
    assert one.word == "claim inconsistent"
    assert one.reason == "it says so twice, with two figures; ours: a gain"


def test_what_is_not_played_says_so() -> None:
    one = Claim("Table 1", "somewhere", "wait", -0.4, None)
    assert one.word == "not played"
    assert "not played yet" in one.reason


def test_the_reason_says_when_no_change_is_proven() -> None:
    assert cell(-0.1, 0.1, -0.05).reason == "the interval holds the claim, and no change"
    assert cell(-0.1, 0.1, -0.4).reason == "ours: no proven change, worse than the claim"
    assert cell(0.1, 0.2, -0.4).reason == "ours: a loss, worse than the claim"


def test_seeds_that_disagree_have_a_wide_interval() -> None:
    found = sure(hull([(-0.2, -0.3, -0.1), (0.1, 0.0, 0.2)], ["first", "second"]))
    assert (found.low, found.high, found.seeds) == (-0.3, 0.2, 2)
    assert found.change == pytest.approx(-0.05)
    assert hull([], []) is None


def test_rows_of_the_paper_that_are_not_of_the_same_jobs_are_found() -> None:
    assert of_other_jobs(TABLE_8["rltune"], TABLE_8["qssf"])
    philly, alibaba = TABLE_9["philly"], TABLE_9["alibaba"]
    assert "51,562 s and 27,259 s" in of_other_jobs(philly["rltune"], philly["fcfs"])
    for peer in alibaba.values():
        assert not of_other_jobs(peer, alibaba["fcfs"])


def test_every_claim_names_rows_that_exist() -> None:
    kinds = {
        data_of(name): type(next(study_of(name).runs(Namespace(seeds=1))))
        for name in GROUPS["paper"]
    }
    stored = {
        claims.row_name(results, run)
        for results, kind in (kinds | {PLANNERS: Group}).items()
        for run in known(results, kind)
    }
    slurm = {f"{SLURM}: {one['arm']}-{one['seed']}" for one in json.loads(SLURM.read_text())}
    for one in claims.claims():
        if one.ours is not None:
            assert one.ours.rows
            assert one.ours.low <= one.ours.change <= one.ours.high
            assert set(one.ours.rows) <= stored | slurm, one


def test_no_cell_is_claimed_twice() -> None:
    cells = [(one.where, one.cell, one.metric) for one in claims.claims()]
    assert len(set(cells)) == len(cells) > 30


def test_json_has_what_the_table_has() -> None:
    found = json.loads(claims.as_json())
    assert [one["word"] for one in found["claims"]] == [one.word for one in claims.claims()]
    assert {row["ground"] for row in found["daemon"]} >= {"philly-nov-1", "helios-venus"}


def test_a_part_without_rows_is_not_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "RESULTS", tmp_path / "none.jsonl")
    monkeypatch.setattr(claims, "QSSF", tmp_path / "none.jsonl")
    words = {one.where: one.word for one in claims.claims()}
    assert words["Figure 12"] == words["Figure 16"] == "not played"
    assert words["Figures 18, 19"] != "not played"
