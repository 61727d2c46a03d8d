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
    "windows": Experiment("windows", "windows", 60, "orders on windows, with and without bounds"),
    "placement": Experiment("placement", "placement", 10, "joint placement beside packing"),
    "tune aa": Experiment("tune", "tune-aa", 60, "nights whose candidate is no better"),
    "tune blind": Experiment("tune", "tune-blind", 60, "nights where limits say nothing"),
    "tune turned": Experiment("tune", "tune-turned", 60, "nights after users have turned round"),
    "tune misled": Experiment("tune", "tune-misled", 60, "nights after limits begin to lie"),
    "tune traces": Experiment("tune", "tune-traces", 150, "a night on each of the long traces"),
    "forecasts": Experiment("forecasts", "forecasts", 15, "expected starts beside real ones"),
    "paper bases": Experiment("paper.bases", "paper", 150, "Figures 12, 14, 15 and Table 6"),
    "paper qssf": Experiment("paper.parts", "paper-qssf", 10, "Table 8, Figures 16 and 17"),
    "paper transfer": Experiment("paper.parts", "paper-transfer", 10, "Table 7"),
    "paper peers": Experiment("paper.peers", "paper-peers", 60, "Table 9"),
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
