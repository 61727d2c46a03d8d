"""The pictures show what the program does today."""

import json
import re

import numpy as np
from matplotlib import image

from scripts.tools.pictures import IMAGES, RECORD, SHOTS, digest, printed, templates

SAID = json.loads(RECORD.read_text())
AGAIN = "make pictures"


def test_the_demo_prints_what_its_picture_shows() -> None:
    """To the last digit, as the seed is the same; at the end a result and a next step."""
    said = printed()
    assert said.splitlines() == SAID["demo"], AGAIN
    assert re.search(r"A job waited \w+ on average under Slurm alone and \w+ with rltuned", said)
    assert "rltuned backtest" in said.splitlines()[-2]
    drawn = (IMAGES / "demo.svg").read_text()
    assert all(word in drawn for word in ("192", "1200", "backtest"))


def test_the_files_are_those_that_were_drawn_from_today_s_templates() -> None:
    assert SAID["templates"] == templates(), AGAIN
    assert SAID["sha256"] == {name: digest(IMAGES / name) for name in SAID["sha256"]}, AGAIN
    assert len(SAID["sha256"]) == 1 + len(SHOTS)
    assert SAID["status"] == "delay, stage full"


def test_the_dark_one_is_dark() -> None:
    for name in SHOTS:
        paper = float(np.median(image.imread(IMAGES / f"status-{name}.png")[..., :3]))
        assert paper < 0.2 if name == "dark" else paper > 0.9
