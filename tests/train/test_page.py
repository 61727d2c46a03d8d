"""The page in a browser: it draws itself, light and dark, and asks no other server."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import image

from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.episodes import play_policy
from rltuned.lab.train.evaluate import EvaluationPlan, compare
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.page import read_curve, write_page
from tests.browser import check_page, chromium
from tests.train.worlds import random_ground

WIDE, TALL = 1300, 3000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    nets = [policy_of(TorchActor("paper", (4, 4), 1.0)) for _ in range(2)]
    workload = random_ground("testbed", 3, 300)
    plays = [lambda window, net=net: play_policy(window, net, Protocol()) for net in nets]
    found = [
        compare(
            workload, {"ours": plays}, EvaluationPlan(3, 90, load, (0.0, 1.0)), protocol=Protocol()
        )
        for load in (0.9, 1.2)
    ]
    folder = tmp_path_factory.mktemp("page")
    curves = folder / "curves.csv"
    curves.write_text("epoch,gap,validation\n0,0.1,0.2\n1,0.2,0.1\n2,0.2,-0.1\n")
    cards: dict[str, dict[str, object]] = {
        "ours": {"summary": "a <test>", "seeds": 2, "digests": ["12", "34"]}
    }
    return write_page(folder, found, cards, {"ours": [read_curve(curves)] * 2})


def test_a_browser_finds_every_table_and_plot(page: Path, tmp_path: Path) -> None:
    dom = chromium(page.as_uri(), tmp_path, "--dump-dom")
    assert dom.count("<svg") == 3
    for words in ("Every policy", "Each model against each rule", "Learning curves", "a &lt;test"):
        assert words in dom
    assert "var(--" in dom
    assert "#0" not in dom.split("</style>")[1].replace("#0f", "")
    assert dom.index("Wait, geometric mean over windows: ours against delay") < dom.index("<h2>")


def test_it_is_well_built(page: Path, tmp_path: Path) -> None:
    check_page(page.read_text(), tmp_path)


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_light_and_dark(page: Path, dark: bool, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    size = f"{WIDE},{TALL}"
    chromium(page.as_uri(), tmp_path / "profile", f"--screenshot={shot}", size=size, dark=dark)
    grey = image.imread(shot)[..., :3].mean(axis=2)
    assert grey.shape == (TALL, WIDE)
    paper = float(np.median(grey))
    assert paper < 0.2 if dark else paper > 0.9
    # ink in every quarter of the page: tables above, plots below
    inked = np.abs(grey - paper) > 0.4
    assert all(part.mean() > 0.002 for part in np.array_split(inked, 4))
