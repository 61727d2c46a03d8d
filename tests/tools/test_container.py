"""deploy/container: what can be seen without building it (`make test-container` builds it)."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = (ROOT / "deploy/container/Containerfile").read_text()
PORT = "9841"


def test_the_wheel_that_is_built_inside_finds_its_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {
        str(Path(pattern).parent)
        for patterns in project["tool"]["setuptools"]["data-files"].values()
        for pattern in patterns
    }
    copied = re.findall(r"^COPY (\S+) \1$", CONTAINERFILE.split("/bin/pip install")[0], re.M)
    missing = [one for one in needed if not any(Path(one).is_relative_to(c) for c in copied)]
    assert missing == []


def test_everybody_means_the_same_port() -> None:
    command = json.loads(re.findall(r"^CMD (.*)$", CONTAINERFILE, re.M)[-1])
    # without the flag a daemon on the simulated cluster takes any free port
    assert command[command.index("--port") + 1] == PORT
    assert f"EXPOSE {PORT}" in CONTAINERFILE
    assert f"127.0.0.1:{PORT}/healthz" in CONTAINERFILE
    assert f":{PORT}:{PORT}" in (ROOT / "deploy/container/compose.yaml").read_text()
    assert f"rltuned:{PORT}" in (ROOT / "deploy/container/prometheus.yml").read_text()


def test_what_is_copied_is_in_the_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    sources = [
        source
        for line in re.findall(r"^COPY (.*) \S+$", CONTAINERFILE, re.M)
        for source in line.split()
    ]
    kept = [line[1:] for line in ignored if line.startswith("!")]
    missing = [one for one in sources if not any(Path(one).is_relative_to(k) for k in kept)]
    assert missing == []
