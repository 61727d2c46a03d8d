"""Write the pages that are made from the code anew: `make docs`."""

from pathlib import Path

from rltuned.daemon.catalogue import markdown as metrics
from rltuned.settings.reference import example
from rltuned.settings.reference import markdown as configuration
from scripts import dashboards

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "docs/configuration.md": configuration,
    "docs/metrics.md": metrics,
    "deploy/rltuned.example.toml": example,
}


def main() -> None:
    for name, text in PAGES.items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text():
            path.write_text(text())
            print(f"{name}: written")
    dashboards.main()


if __name__ == "__main__":
    main()
