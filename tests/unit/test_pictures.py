"""The pictures show what the program does today."""

import json

import numpy as np
from matplotlib import image

from scripts.tools.pictures import IMAGES, RECORD, SHOTS, digest, printed, rows, templates

SAID = json.loads(RECORD.read_text())
AGAIN = "make pictures"


def test_the_demo_prints_what_its_picture_shows() -> None:
    now, then = (
        {tuple(row.split()[:3]) for row in found} for found in (rows(printed()), SAID["demo"])
    )
    # job, partition and user; places depend on the second in which the cycle runs
    assert len(now & then) >= 0.8 * max(len(now), len(then)), AGAIN
    assert len(then) >= 10
    drawn = (IMAGES / "demo.svg").read_text()
    assert all(job in drawn and user in drawn for job, _, user in then)


def test_no_job_of_an_sla_partition_moves_in_it() -> None:
    assert {row.split()[1] for row in SAID["demo"]} == {"gpu"}
    assert "SLA" in (IMAGES / "demo.svg").read_text()


def test_the_files_are_those_that_were_drawn_from_today_s_templates() -> None:
    assert SAID["templates"] == templates(), AGAIN
    assert SAID["sha256"] == {name: digest(IMAGES / name) for name in SAID["sha256"]}, AGAIN
    assert len(SAID["sha256"]) == 1 + len(SHOTS)
    assert SAID["status"] == "delay, stage full"


def test_the_dark_one_is_dark() -> None:
    for name in SHOTS:
        paper = float(np.median(image.imread(IMAGES / f"status-{name}.png")[..., :3]))
        assert paper < 0.2 if name == "dark" else paper > 0.9
