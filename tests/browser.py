"""Pages in a real browser: what it makes of them, and what axe finds wrong with them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import axe_core_python
import numpy as np
from matplotlib import image

from tests import needs
from tests.programs import ran

AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
SIZES = ("390,1600", "900,1600", "1440,1600")
_ASK = """
addEventListener("load", async () => {
  const stops = [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")]
    .filter(e => e.tabIndex >= 0 && e.checkVisibility());
  const keys = stops.map(e => {
    e.focus();
    const style = getComputedStyle(e);
    return {name: e.outerHTML.slice(0, 80), reached: document.activeElement === e,
            seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0};
  });
  const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
  const found = await axe.run(document, {runOnly: rules});
  const broken = found.violations.map(
    v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 120)).join(" | "));
  const answer = document.createElement("pre");
  answer.id = "answer";
  const {scrollWidth, clientWidth} = document.documentElement;
  const overflow = scrollWidth - clientWidth;
  answer.textContent = JSON.stringify({broken, keys, passes: found.passes.length, overflow});
  document.body.append(answer);
});
"""


@dataclass(frozen=True)
class Audit:
    """What was found on a page.

    broken: rules of axe, with the places. unreached, unseen: of what a keyboard can stop at, what
    cannot have the focus, and what does not show that it has it. passes: rules that hold.
    overflow_px: by which the page is wider than the window.
    """

    broken: list[str]
    unreached: list[str]
    unseen: list[str]
    stops: int
    passes: int
    overflow_px: int


def chromium(
    address: str, profile: Path, *asked: str, size: str = "1200,1600", dark: bool = False
) -> str:
    """What headless Chromium prints when it is asked so; profile: a folder of its own."""
    needs.program("chromium")
    given = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    given += [f"--user-data-dir={profile}", f"--window-size={size}"]
    given += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    done = ran(*given, *asked, address)
    return done.stdout


def audit(html: str, folder: Path, *, size: str, dark: bool) -> Audit:
    """Let axe look at a page that holds its own style, and walk through it by keyboard."""
    page = folder / "audited.html"
    scripts = f"<script>{AXE.read_text()}</script><script>{_ASK}</script>"
    page.write_text(html.replace("</body>", f"{scripts}</body>"))
    dom = chromium(
        page.as_uri(), folder / "profile", "--virtual-time-budget=20000", "--dump-dom",
        size=size, dark=dark,
    )  # fmt: skip
    answer = re.search(r'<pre id="answer">(.*?)</pre>', dom, re.DOTALL)
    assert answer, dom[-2000:]
    found: dict[str, Any] = json.loads(
        answer[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )
    keys = found["keys"]
    return Audit(
        broken=found["broken"],
        unreached=[k["name"] for k in keys if not k["reached"]],
        unseen=[k["name"] for k in keys if not k["seen"]],
        stops=len(keys),
        passes=found["passes"],
        overflow_px=found["overflow"],
    )


def check_page(html: str, folder: Path) -> None:
    """A page in itself: nothing that axe finds, every stop of a keyboard, no wider than its window.

    On a telephone in the light and on a desk in the dark.
    """
    for size, dark in ((SIZES[0], False), (SIZES[-1], True)):
        found = audit(html, folder, size=size, dark=dark)
        for wrong in (found.broken, found.unreached, found.unseen):
            assert not wrong, f"{size}, dark {dark}: {wrong}"
        assert found.passes > 10
        assert found.overflow_px == 0, f"{size}: {found.overflow_px} px too wide"


def check_print(address: str, folder: Path, *, size: str, dark: bool, parts: int) -> None:
    """What is seen: the scheme's paper, and ink in each of so many parts from top to bottom."""
    shot = folder / "shot.png"
    chromium(address, folder / "profile", f"--screenshot={shot}", size=size, dark=dark)
    grey = image.imread(shot)[..., :3].mean(axis=2)
    assert f"{grey.shape[1]},{grey.shape[0]}" == size
    paper = float(np.median(grey))
    assert paper < 0.2 if dark else paper > 0.9  # the style sheet got past the policy
    inked = np.abs(grey - paper) > 0.4
    assert all(part.mean() > 0.002 for part in np.array_split(inked, parts))
