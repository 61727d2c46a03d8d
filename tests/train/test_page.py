"""The page in a browser: it draws itself, light and dark, and asks no other server."""

from pathlib import Path

import pytest
import torch

from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.evaluate import EvaluationPlan, evaluate_on, write_page
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.rollout import play_policy
from tests.browser import check_page, check_print, chromium
from tests.train.worlds import random_ground


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    nets = [policy_of(TorchActor("paper", (4, 4), 1.0)) for _ in range(2)]
    workload = random_ground("testbed", 3, 300)
    plays = [lambda window, net=net: play_policy(window, net, Protocol()) for net in nets]
    found = [
        evaluate_on(
            workload, {"ours": plays}, EvaluationPlan(3, 90, load, (0.0, 1.0)), protocol=Protocol()
        )
        for load in (0.9, 1.2)
    ]
    folder = tmp_path_factory.mktemp("page")
    cards: dict[str, dict[str, object]] = {
        "ours": {"summary": "a <test>", "seeds": 2, "digests": ["12", "34"]}
    }
    return write_page(folder, found, cards)


def test_a_browser_finds_every_table_and_plot(page: Path, tmp_path: Path) -> None:
    dom = chromium(page.as_uri(), tmp_path, "--dump-dom")
    assert dom.count("<svg") > 2
    for words in ("Every policy", "ours against each rule", "a &lt;test"):
        assert words in dom
    assert dom.index("the rule delay: wait and slowdown") < dom.index("<h2")


def test_it_is_well_built(page: Path, tmp_path: Path) -> None:
    check_page(page.read_text(), tmp_path)


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_light_and_dark(page: Path, dark: bool, tmp_path: Path) -> None:
    check_print(page.as_uri(), tmp_path, size="1300,1200", dark=dark, parts=4)
