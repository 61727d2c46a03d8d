"""Write the pages that are made from the code: `make docs`."""

from pathlib import Path

from rltuned.settings.reference import example
from scripts.studies.figures import results
from scripts.tools.reference.manuals import rltuned_1, rltuned_8, rltuned_toml_5
from scripts.tools.reference.pages import cli, configuration, metrics

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "docs/configuration.md": configuration,
    "docs/metrics.md": metrics,
    "docs/cli.md": cli,
    "docs/img/results.svg": results,
    "docs/man/rltuned.1": rltuned_1,
    "docs/man/rltuned.8": rltuned_8,
    "docs/man/rltuned.toml.5": rltuned_toml_5,
    "deploy/rltuned.example.toml": example,
}


def main() -> None:
    for name, text in PAGES.items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text():
            path.write_text(text())
            print(f"{name}: written")


if __name__ == "__main__":
    main()
