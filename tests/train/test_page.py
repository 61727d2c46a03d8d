"""The page in a browser: it draws itself, light and dark, and asks no other server."""

from pathlib import Path

import pytest
import torch

from rltuned.errors import TraceError
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.episodes import play_policy
from rltuned.lab.train.evaluate import EvaluationPlan, evaluate_on
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.page import read_curve, write_page
from tests.browser import check_page, check_print, chromium
from tests.train.worlds import random_ground
from tests.unit.cli.runner import run


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
    assert dom.index("the rule delay: wait and slowdown") < dom.index("<h2>")


def test_it_is_well_built(page: Path, tmp_path: Path) -> None:
    check_page(page.read_text(), tmp_path)


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_light_and_dark(page: Path, dark: bool, tmp_path: Path) -> None:
    check_print(page.as_uri(), tmp_path, size="1300,3000", dark=dark, parts=4)


def test_curves_of_trainings_that_still_run(tmp_path: Path) -> None:
    rows = ["epoch,gap,validation", "0,0.1,0.2", "1,0.2,nan", "2,0.3,-0.1"]
    files = [tmp_path / f"{seed}.csv" for seed in range(3)]
    for seed, file in enumerate(files):
        file.write_text("\n".join(rows[: 4 - seed]) + "\n")
    page = tmp_path / "page.html"
    ran = run("train", "curves", f"mine={files[0]},{files[1]}", "--out", str(page))
    assert ran.exit_code == 0, ran.output
    # by then the one has exp(-0.1) of the rule's cost, the other, which was judged once, exp(0.2)
    assert "mine: 3 epochs, held out 1.063 of what `delay` costs" in page.read_text()
    check_page(page.read_text(), tmp_path)
    files[2].write_text("epoch,gap,validation\n0,0.1,nan\n")
    with pytest.raises(TraceError, match=r"2\.csv: not curves of a training"):
        run("train", "curves", f"mine={files[2]}", "--out", str(page))
    assert run("train", "curves", str(files[0]), "--out", str(page)).exit_code == 2
