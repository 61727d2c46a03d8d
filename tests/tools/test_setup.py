"""What `make setup` and `make demo` ask pip for, with the ordinary index and with another one."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CPU = "--extra-index-url https://download.pytorch.org/whl/cpu"
PYTHON = """\
#!/bin/sh
case "$*" in
"-m pip config list") cat "$0.config" ;;
"-m pip install"*) echo "$*" >"$0.asked" ;;
*) echo rltuned ;;
esac
"""


def asked(folder: Path, config: str, *extras: str) -> str:
    """What setup.sh asks pip for; pip answers `config list` with `config`."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    Path(f"{python}.config").write_text(config)
    command = ["sh", str(ROOT / "scripts/setup.sh"), str(folder), *extras]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return Path(f"{python}.asked").read_text()


def test_an_ordinary_machine_gets_torch_without_cuda(tmp_path: Path) -> None:
    found = asked(tmp_path, "", "train,dev")
    assert CPU in found
    assert "--editable .[train,dev]" in found


@pytest.mark.parametrize(
    "config", [":env:.find-links='/wheels'", "global.index-url='https://mirror.example/simple'"]
)
def test_a_site_with_an_index_of_its_own_keeps_it(tmp_path: Path, config: str) -> None:
    assert "index-url" not in asked(tmp_path, config, "train,dev")


def test_the_base_asks_for_no_extra_and_no_index(tmp_path: Path) -> None:
    found = asked(tmp_path, "")
    assert CPU not in found
    assert found.rstrip().endswith("--editable .")


def index_with(folder: Path, version: str) -> str:
    """The address of a package index that has an empty torch of this version."""
    place = folder / "torch"
    place.mkdir(parents=True)
    name = f"torch-{version}-py3-none-any.whl"
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(place / name, "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    (place / "index.html").write_text(f'<a href="{name}">{name}</a>')
    return folder.as_uri()


def test_pip_prefers_the_build_for_the_cpu(tmp_path: Path) -> None:
    ordinary = index_with(tmp_path / "ordinary", "2.13.0")
    cpu = index_with(tmp_path / "cpu", "2.13.0+cpu")
    out = tmp_path / "out"
    options = ("--index-url", ordinary, "--extra-index-url", cpu, "--dest", str(out))
    limits = ("--no-cache-dir", "--no-deps", "--constraint", str(ROOT / "constraints.txt"))
    subprocess.run(
        [sys.executable, "-m", "pip", "--isolated", "download", *options, *limits, "torch"],
        check=True,
        capture_output=True,
        env=os.environ | {"PIP_CONFIG_FILE": os.devnull},  # a machine's own wheels
        timeout=300,
    )
    assert [file.name for file in out.iterdir()] == ["torch-2.13.0+cpu-py3-none-any.whl"]


def test_every_module_that_a_script_starts_does_something() -> None:
    """A module without this line is imported, and nothing else: nothing was compiled ahead."""
    scripts = [*ROOT.glob("scripts/*.sh"), *ROOT.glob("deploy/**/*inst"), ROOT / "Makefile"]
    named = {n for path in scripts for n in re.findall(r"-m (rltuned\.[\w.]+)", path.read_text())}
    assert "rltuned.lab.cli.compile" in named
    for name in named:
        source = ROOT / f"{name.replace('.', '/')}.py"
        assert 'if __name__ == "__main__":' in source.read_text(), name
