"""The status page of a real daemon in a real browser: light and dark, wide and narrow."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from tests import needs
from tests.e2e.process import Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("page")
    config = folder / "rltuned.toml"
    config.write_text('[policy]\nname = "sjf"\n')
    config.chmod(0o600)
    args = ("--backend", "sim", "--no-show", "--dry-run", "--speed", "60", "--port", "0")
    with Daemon(folder, *args, "--config", str(config)) as running:
        running.wait_for_log("proposed=", times=2)
        yield running


def chromium(daemon: Daemon, folder: Path, *asked: str, size: str = "1200,1600") -> str:
    needs.program("chromium")
    given = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    given += [f"--user-data-dir={folder / 'profile'}", f"--window-size={size}"]
    done = subprocess.run(
        [*given, *asked, daemon.url() + "/"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_the_browser_finds_landmarks_tables_and_no_users(daemon: Daemon, tmp_path: Path) -> None:
    dom = chromium(daemon, tmp_path, "--dump-dom")
    for landmark in ("<header>", "<main>", "<footer>", 'lang="en"', "#queue"):
        assert landmark in dom
    tables = re.findall(r"<table>.*?</table>", dom, re.DOTALL)
    assert len(tables) == 3
    for table in tables:
        assert "<caption>" in table
        assert 'scope="col"' in table
        assert 'scope="row"' in table
    assert "place before" in dom
    assert re.search(r"up \d+<", dom)
    assert re.search(r"down \d+<", dom)
    assert "user0" not in dom
    assert "<script" not in dom
    assert "http://" not in dom.replace(daemon.url(), "")


def test_a_job_is_found(daemon: Daemon) -> None:
    page = daemon.get("/")
    (first,) = re.findall(
        r"of the new order</caption>.*?<th scope=row>([\d_]+)</th>", page, re.DOTALL
    )
    found = daemon.get(f"/?job={first}")
    assert f">Job {first}</caption>" in found or f"No waiting job {first}" in found  # it may start
    assert "No waiting job 999999 was seen." in daemon.get("/?job=999999")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1440, 900, 390])
def test_it_can_be_read(daemon: Daemon, tmp_path: Path, dark: bool, width: int) -> None:
    shot = tmp_path / "shot.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    chromium(daemon, tmp_path, scheme, f"--screenshot={shot}", size=f"{width},1600")
    grey = image.imread(shot)[..., :3].mean(axis=2)
    assert grey.shape == (1600, width)
    paper = float(np.median(grey))
    assert paper < 0.2 if dark else paper > 0.9  # the style sheet got past the policy
    inked = np.abs(grey - paper) > 0.4
    assert all(part.mean() > 0.002 for part in np.array_split(inked, 3))


def luminance(colour: str) -> float:
    """Relative luminance of #rgb or #rrggbb, as WCAG 2 defines it."""
    digits = colour if len(colour) == 6 else "".join(2 * c for c in colour)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_the_contrast_of_all_text_is_enough(daemon: Daemon) -> None:
    """WCAG 2 AA: 4.5 to 1, on the page's ground and on its cards, in both schemes."""
    light, dark = daemon.get("/status.css").split("@media")
    for scheme in (light, dark):
        colours = dict(re.findall(r"--(\w+):#([0-9a-f]+)", scheme))
        for ground in ("paper", "card"):
            for ink in ("ink", "muted", "good", "bad", "warn", "link"):
                pair = sorted((luminance(colours[ground]), luminance(colours[ink])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (ink, ground)
