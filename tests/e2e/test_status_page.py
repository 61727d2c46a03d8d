"""The status page of a real daemon in a real browser: light and dark, wide and narrow."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.browser import SIZES, audit, check_page, check_print, chromium
from tests.configs import settings_file
from tests.e2e.process import Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("page")
    config = settings_file(folder, '[policy]\nname = "sjf"\n[http]\njobs = true\n')
    args = ("--backend", "sim", "--dry-run", "--speed", "60", "--port", "0")
    with Daemon(folder, *args, "--config", str(config)) as running:
        running.wait_for_log("proposed=", times=2)
        yield running


def shown(daemon: Daemon, folder: Path, *asked: str, size: str = "1200,1600") -> str:
    return chromium(daemon.url() + "/", folder / "profile", *asked, size=size)


def test_the_browser_finds_landmarks_tables_and_no_users(daemon: Daemon, tmp_path: Path) -> None:
    dom = shown(daemon, tmp_path, "--dump-dom")
    for landmark in ("<header ", "<main>", "<footer>", 'lang="en"', "#queue"):
        assert landmark in dom
    tables = re.findall(r"<table>.*?</table>", dom, re.DOTALL)
    assert len(tables) == 5
    for table in tables:
        assert "<caption>" in table
        assert 'scope="col"' in table
        assert 'scope="row"' in table
    assert "Slurm's own" in dom
    assert re.search(r"up \d+<", dom)
    assert re.search(r"down \d+<", dom)
    assert "of 13 used" in dom
    assert "user0" not in dom
    assert re.findall(r"<script[^>]*>", dom) == ['<script src="status.js" defer="">']
    assert "http://" not in dom.replace(daemon.url(), "").replace("http://www.w3.org/2000/svg", "")


def test_a_job_has_a_page(daemon: Daemon) -> None:
    first = re.findall(r'<th scope=row><a href="job\?id=([^"]+)">', daemon.get("/"))[0]
    code, found = daemon.ask(f"/job?id={first}")
    assert code == 404 or f"<h1>Job {first}</h1>" in found  # it may have started meanwhile
    assert daemon.ask("/job?id=999999")[0] == 404


def test_the_page_is_kept_fresh_in_place(daemon: Daemon, tmp_path: Path) -> None:
    """The script is the port's own, the policy lets it run, and it puts new parts in place."""
    script = daemon.get("/status.js")
    assert "replaceChildren" in script
    dom = shown(daemon, tmp_path, "--virtual-time-budget=20000", "--dump-dom")
    assert "does not answer" not in dom
    assert 'data-part="tiles"' in dom


@pytest.mark.parametrize(("size", "dark"), list(zip(SIZES, (False, True, False), strict=True)))
def test_it_can_be_read(daemon: Daemon, tmp_path: Path, size: str, dark: bool) -> None:
    check_print(daemon.url() + "/", tmp_path, size=size, dark=dark, parts=3)


def alone(page: str, daemon: Daemon) -> str:
    """A page that holds its own style, and no script."""
    style = f"<style>{daemon.get('/status.css')}</style>"
    page = page.replace("<link rel=stylesheet href=status.css>", style)
    return page.replace("<script src=status.js defer></script>", "")


def test_an_audit_finds_what_is_wrong(tmp_path: Path) -> None:
    page = (
        "<!doctype html><html><head><title>t</title><style>a{outline:none}</style></head>"
        "<body><h1>t</h1><main><img src=x><a href=/>on</a><p style='width:3000px'>wide</p>"
        "</main></body></html>"
    )
    found = audit(page, tmp_path, size="900,1600", dark=False)
    assert {one.partition(":")[0] for one in found.broken} == {
        "html-has-lang",
        "image-alt",
        "region",
    }
    assert found.unseen == ['<a href="/">on</a>']
    assert found.overflow_px > 1_000


@pytest.mark.parametrize("path", ["/", "/job?id=999999", "/your-job", "/runbook"])
def test_axe_and_a_keyboard_find_nothing_wrong(daemon: Daemon, tmp_path: Path, path: str) -> None:
    check_page(alone(daemon.ask(path)[1], daemon), tmp_path)


def luminance(colour: str) -> float:
    """Relative luminance of #rgb or #rrggbb, as WCAG 2 defines it."""
    digits = colour if len(colour) == 6 else "".join(2 * c for c in colour)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_the_contrast_of_all_text_is_enough(daemon: Daemon) -> None:
    """WCAG 2 AA: 4.5 to 1, on the page's ground and on its cards, in both schemes."""
    light, dark = daemon.get("/status.css").split("@media(prefers-color-scheme:dark)")
    for scheme in (light, dark):
        colours = dict(re.findall(r"--(\w+):#([0-9a-f]+)", scheme))
        for ground in ("paper", "card"):
            for ink in ("ink", "muted", "good", "bad", "warn", "link"):
                pair = sorted((luminance(colours[ground]), luminance(colours[ink])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (ink, ground)
