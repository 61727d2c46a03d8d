"""The experiments behind the figures of the documents, and the files of their rows."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Experiment:
    """One of the table. module: of this package. minutes: of two cores, from nothing."""

    module: str
    data: str
    minutes: int
    about: str


EXPERIMENTS = {
    "delays": Experiment("delays", "delays", 90, "the rule beside FCFS, SAF and hostile orders"),
    "trust": Experiment("trust", "trust", 90, "the network beside the rule, by its trust"),
    "backfill": Experiment("backfill", "backfill", 15, "Slurm's own backfill beside EASY"),
    "run_times": Experiment("run_times", "run-times", 40, "predicted run times beside limits"),
    "placement": Experiment("placement", "placement", 10, "joint placement beside packing"),
    "tune aa": Experiment("tune", "tune-aa", 60, "nights whose candidate is no better"),
    "tune blind": Experiment("tune", "tune-blind", 60, "nights where limits say nothing"),
    "forecasts": Experiment("forecasts", "forecasts", 15, "expected starts beside real ones"),
    "paper bases": Experiment("paper.bases", "paper", 150, "Figures 12, 14, 15 and Table 6"),
    "paper qssf": Experiment("paper.parts", "paper-qssf", 10, "Table 8, Figures 16 and 17"),
    "paper transfer": Experiment("paper.parts", "paper-transfer", 10, "Table 7"),
    "paper peers": Experiment("paper.parts", "paper-peers", 5, "Table 9"),
    "paper warm": Experiment("paper.parts", "paper-warm", 40, "DL2's warm start"),
}
GROUPS = {
    "results": [name for name in EXPERIMENTS if not name.startswith(("paper", "forecasts"))],
    "paper": [name for name in EXPERIMENTS if name.startswith("paper")],
    "tune": [name for name in EXPERIMENTS if name.startswith("tune")],
}


def data_of(name: str) -> Path:
    """Where an experiment keeps its rows, a line of JSON each."""
    return Path("docs", "data", f"{EXPERIMENTS[name].data}.jsonl")
