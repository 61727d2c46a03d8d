"""How a cycle grows with the queue and the cluster (`python -m scripts.benchmarks.scale`).

Made-up answers of squeue, sinfo, sprio and scontrol through the daemon's own loop, every size in a
process of its own; decisions at the paper's queue sizes within a burst of 10,000; the largest queue
with young jobs, in the paper's windows, and at the daemon's own pace. What is measured is
kept in --results, and a run that was broken off goes on where it stopped; draws
docs/img/scale.svg; prints the figures in the form of `make bench`.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rltuned.daemon.wiring import model_path
from rltuned.settings import Flag, load
from scripts.benchmarks import Figure, bursting, owning, pacing
from scripts.benchmarks.scaling import JOBS, NODES, Cycle, Size, figures, measured

POLICY = "model:rltune"
WINDOWED = "model:rltune-paper"
"""Takes the queue in the paper's windows of 256."""
FEW, MANY = 3, 5
LARGE = 20_000
LARGEST = Size(100_000, 1_000)
YOUNG = Size(100_000, 1_000, apart_s=0.03)
"""Submitted within 50 minutes."""
SHORT_S, DAEMON_S = 5.0, 60.0
SHOWN = (
    "commands", "parse", "select", "encode", "score", "plan", "place", "explain",
    "journal", "apply", "updates", "judge", "other",
)  # fmt: skip
WAITED = {"commands": "observe:", "updates": "apply:"}
"""Waiting for Slurm's commands, while reading and while writing."""


def sizes() -> list[Size]:
    """Every queue on every cluster, small ones first."""
    return [Size(pending, nodes) for pending in JOBS for nodes in NODES]


def kept(results: Path) -> dict[str, dict[str, Any]]:
    """What earlier runs have measured, by name."""
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {row["name"]: row for row in rows}


def keep(results: Path, row: dict[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as file:
        file.write(json.dumps(row) + "\n")


def bundle_of(policy: str) -> Path:
    """The folder of a `model:NAME`."""
    return model_path(load(None, (Flag("policy.name", policy, "bench-scale"),)))


def run(results: Path, policy: str) -> None:
    """Measure what is not measured yet."""
    known = kept(results)
    if "burst" not in known:
        found = [asdict(f) for f in bursting.measure(bundle_of(policy))]
        keep(results, {"name": "burst", "load": os.getloadavg(), "figures": found})
    if "owning" not in known:
        found = [asdict(f) for f in owning.measure()]
        keep(results, {"name": "owning", "load": os.getloadavg(), "figures": found})
    todo = [(str(size), size, policy) for size in sizes()]
    todo += [("young", YOUNG, policy), ("windows", YOUNG, WINDOWED)]
    for name, size, who in todo:
        if name not in known:
            _measure(results, name, size, who)
    for name, threads, interval_s in (
        ("pace", pacing.THREADS, DAEMON_S),
        ("short_interval", [pacing.CALM] * FEW, SHORT_S),
    ):
        if name not in known:
            starts = [asdict(s) for s in pacing.paced(LARGEST, policy, threads, interval_s)]
            keep(results, {"name": name, "load": os.getloadavg(), "starts": starts})


def _measure(results: Path, name: str, size: Size, policy: str) -> None:
    rounds = FEW if size.pending > LARGE else MANY
    cycles = [
        {field: getattr(c, field) for field in Cycle.__slots__}
        for c in measured(size, policy, rounds)
    ]
    row = {
        "name": name, "pending": size.pending, "nodes": size.nodes, "policy": policy,
        "load": os.getloadavg(), "cycles": cycles,
    }  # fmt: skip
    keep(results, row)
    print(f"bench-scale: {name}: {cycles[-1]['wall_s']:.2f} s", file=sys.stderr)


def told(known: dict[str, dict[str, Any]]) -> list[Figure]:
    """The figures beside their references."""
    found = [Figure(**f) for name in ("burst", "owning") for f in known[name]["figures"]]
    for size in sizes():
        if str(size) in known:
            found += figures(size, [Cycle(**c) for c in known[str(size)]["cycles"]])
    return found


def table(known: dict[str, dict[str, Any]]) -> str:
    """Markdown: medians, and the stages of the middle cluster."""
    lines = [
        "| pending | nodes | wall, s (least to most) | processor, s | commands, s | peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    for size in sizes():
        if str(size) not in known:
            continue
        cycles = [Cycle(**c) for c in known[str(size)]["cycles"]]
        walls = sorted(c.wall_s for c in cycles)
        commands = median(sum(s for n, s in c.stages_wall_s.items() if ":" in n) for c in cycles)
        lines.append(
            f"| {size.pending:,} | {size.nodes:,} | {median(walls):.2f} ({walls[0]:.2f} to "
            f"{walls[-1]:.2f}) | {median(c.cpu_s for c in cycles):.2f} | {commands:.2f} | "
            f"{max(c.peak_mib for c in cycles):.0f} |"
        )
    lines += ["", f"| pending | nodes | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 2) + "|"]
    for size in (*(Size(p, NODES[1]) for p in JOBS), Size(JOBS[-1], NODES[-1])):
        row = known.get(str(size))
        if row is not None:
            cells = [f"{_stage(row, name):.3f}" for name in SHOWN]
            lines.append(f"| {size.pending:,} | {size.nodes:,} | {' | '.join(cells)} |")
    return "\n".join([*lines, *_bounded(known), *_paces(known)])


def _bounded(known: dict[str, dict[str, Any]]) -> list[str]:
    """The largest queue: what the bounds did, and what the cycle took."""
    lines = ["", "| cycle | wall, s | processor, s | written | within |", "|---|---|---|---|---|"]
    for name in (str(LARGEST), "young", "windows"):
        for c in known.get(name, {"cycles": []})["cycles"]:
            within = ", ".join(f"{k} {v:,}" for k, v in c.get("within", {}).items())
            lines.append(
                f"| {name} | {c['wall_s']:.2f} | {c['cpu_s']:.2f} | {c['applied']} | {within} |"
            )
    return lines


def _paces(known: dict[str, dict[str, Any]]) -> list[str]:
    """When cycles began."""
    lines = ["", "| run | began, s | took, s | threads | skipped | x | written |", "|---" * 7 + "|"]
    for name in ("pace", "short_interval"):
        lines += [
            f"| {name} | {s['at_s']:.1f} | {s['wall_s']:.2f} | {s['threads']} | {s['skipped']} | "
            f"{s['stretch']:g} | {s['applied']} |"
            for s in known.get(name, {"starts": []})["starts"]
        ]
    return lines


def _stage(row: dict[str, Any], name: str) -> float:
    """Wall seconds in the median cycle."""

    def of(seconds: dict[str, float]) -> float:
        start = WAITED.get(name)
        if start is None:
            return seconds.get(name, 0.0)
        return sum(s for stage, s in seconds.items() if stage.startswith(start))

    return median(of(c["stages_wall_s"]) for c in row["cycles"])


def draw(known: dict[str, dict[str, Any]], out: Path) -> None:
    """Seconds and memory against jobs; the stages by jobs, and by nodes in the largest queue."""
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "rltuned"
    figure, ((cost, memory), (by_jobs, by_nodes)) = plt.subplots(
        2, 2, figsize=(9, 6.4), layout="constrained"
    )
    for nodes in NODES:
        rows = [known[str(Size(p, nodes))] for p in JOBS if str(Size(p, nodes)) in known]
        jobs, label = [row["pending"] for row in rows], f"{nodes:,} nodes"
        walls = [median(c["wall_s"] for c in r["cycles"]) for r in rows]
        cost.plot(jobs, walls, "o-", ms=3, label=label)
        memory.plot(jobs, [max(c["peak_mib"] for c in r["cycles"]) for r in rows], "o-", ms=3)
    cost.plot([10_000, 100_000], [3, 30], "kv", ms=4, label="our bounds")
    cost.set(xscale="log", yscale="log", xlabel="pending jobs", ylabel="seconds a cycle (wall)")
    memory.set(xscale="log", xlabel="pending jobs", ylabel="peak MiB", ylim=(0, None))
    cost.legend(frameon=False, fontsize=7)
    for axis in (cost, memory):
        axis.grid(alpha=0.3)
    _bars(
        by_jobs,
        [(f"{p:,}", known.get(str(Size(p, NODES[1]))), 1e6 / p) for p in JOBS],
        (f"pending jobs, {NODES[1]:,} nodes", "microseconds a job (wall)"),
    )
    _bars(
        by_nodes,
        [(f"{n:,}", known.get(str(Size(JOBS[-1], n))), 1.0) for n in NODES],
        (f"nodes, {JOBS[-1]:,} pending jobs", "seconds a cycle (wall)"),
    )
    by_nodes.legend(*by_jobs.get_legend_handles_labels(), frameon=False, fontsize=6, ncols=3)
    by_nodes.set_ylim(0, 1.6 * by_nodes.get_ylim()[1])  # room for the legend
    figure.savefig(out, metadata={"Date": None})


def _bars(
    axis: Any, rows: list[tuple[str, dict[str, Any] | None, float]], names: tuple[str, str]
) -> None:
    """Stages one on the other; rows: label, what was measured, factor on the seconds."""
    from matplotlib import colormaps  # noqa: PLC0415 - only here

    measured_rows = [(label, row, factor) for label, row, factor in rows if row is not None]
    below = [0.0] * len(measured_rows)
    for number, stage in enumerate(SHOWN):
        share = [factor * _stage(row, stage) for _, row, factor in measured_rows]
        labels = [label for label, _, _ in measured_rows]
        colour = colormaps["tab20"](number)  # ten colours would not do
        axis.bar(labels, share, bottom=below, label=stage, color=colour)
        below = [b + s for b, s in zip(below, share, strict=True)]
    axis.set(xlabel=names[0], ylabel=names[1])


def main() -> int:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.scale")
    parser.add_argument("--results", type=Path, default=Path(".run/bench/scale.jsonl"))
    parser.add_argument("--policy", default=POLICY)
    parser.add_argument("--out", type=Path, default=Path("docs/img/scale.svg"))
    parser.add_argument("--table", action="store_true", help="Only print what was measured.")
    given = parser.parse_args()
    if not given.table:
        run(given.results, given.policy)
    known = kept(given.results)
    draw(known, given.out)
    found = json.dumps([f.document() for f in told(known)], indent=2)
    print(table(known) if given.table else found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
