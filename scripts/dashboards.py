"""Write deploy/grafana/dashboards: part of `make docs`."""

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from scripts.boards import decisions, health, overview, placement, reliability
from scripts.boards.view import Board, dashboard

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"
BOARDS: tuple[Board, ...] = (
    overview.BOARD, decisions.BOARD, placement.BOARD, health.BOARD, reliability.BOARD,
)  # fmt: skip


def texts() -> Mapping[str, str]:
    """File name -> JSON of every dashboard."""
    return {f"{board.name}.json": _json(board) for board in BOARDS}


def _json(board: Board) -> str:
    return json.dumps(dashboard(board), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"deploy/grafana/dashboards/{name}: written")


if __name__ == "__main__":
    main()
