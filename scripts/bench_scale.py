"""How a cycle grows with the queue and the cluster (`python -m scripts.bench_scale`).

Made-up answers of squeue, sinfo, sprio and scontrol through the daemon's own loop, every size in a
process of its own; decisions at the paper's queue sizes within a burst of 10,000; the largest queue
where the guards bind, in the paper's windows, and at the daemon's own pace. What is measured is
kept in --results, and a run that was broken off goes on where it stopped; draws
docs/img/scale.svg; prints the figures in the form of `rltuned bench`.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rltuned.bench import Figure, bursting, pacing
from rltuned.bench.scaling import JOBS, NODES, Cycle, Size, figures, measured
from rltuned.daemon.rig import model_path
from rltuned.settings import Flag, load

POLICY = "model:rltune"
WINDOWED = "model:rltune-paper"
"""Takes the queue in the paper's windows of 256."""
FEW, MANY = 3, 5
LARGE = 20_000
LARGEST = Size(100_000, 1_000)
YOUNG = Size(100_000, 1_000, apart_s=0.03)
"""Nobody is overdue, so that the displacement binds, and the floor between users."""
SHORT_S, DAEMON_S = 5.0, 60.0
SHOWN = (
    "parse", "select", "encode", "score", "guard", "plan", "explain", "journal", "apply", "judge",
    "other",
)  # fmt: skip


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
    todo = [(str(size), size, policy) for size in sizes()]
    todo += [("guards", YOUNG, policy), ("windows", YOUNG, WINDOWED)]
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
    found = [Figure(**f) for f in known["burst"]["figures"]]
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
    lines += ["", f"| pending, {NODES[1]:,} nodes | {' | '.join(SHOWN)} |"]
    lines.append("|---" * (len(SHOWN) + 1) + "|")
    for pending in JOBS:
        row = known.get(str(Size(pending, NODES[1])))
        if row is not None:
            cells = [f"{_stage(row, name):.3f}" for name in SHOWN]
            lines.append(f"| {pending:,} | {' | '.join(cells)} |")
    return "\n".join([*lines, *_guarded(known), *_paces(known)])


def _guarded(known: dict[str, dict[str, Any]]) -> list[str]:
    """The largest queue: what the guards did, and what the cycle took."""
    lines = ["", "| cycle | wall, s | processor, s | written | within |", "|---|---|---|---|---|"]
    for name in (str(LARGEST), "guards", "windows"):
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
    return median(float(c["stages_cpu_s"].get(name, 0.0)) for c in row["cycles"])


def draw(known: dict[str, dict[str, Any]], out: Path) -> None:
    """Seconds and memory against jobs, and the stages on the middle cluster."""
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "rltuned"
    figure, (cost, memory, parts) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    for nodes in NODES:
        rows = [known[str(Size(p, nodes))] for p in JOBS if str(Size(p, nodes)) in known]
        jobs = [row["pending"] for row in rows]
        cost.plot(
            jobs, [median(c["cpu_s"] for c in r["cycles"]) for r in rows], "o-", ms=3,
            label=f"{nodes:,} nodes",
        )  # fmt: skip
        memory.plot(jobs, [max(c["peak_mib"] for c in r["cycles"]) for r in rows], "o-", ms=3)
    cost.plot([10_000, 100_000], [3, 30], "kv", ms=4, label="bounds (of wall time)")
    cost.set(xscale="log", yscale="log", xlabel="pending jobs", ylabel="processor seconds a cycle")
    memory.set(xscale="log", xlabel="pending jobs", ylabel="peak MiB", ylim=(0, None))
    cost.legend(frameon=False, fontsize=7)
    rows = [r for p in JOBS if (r := known.get(str(Size(p, NODES[1]))))]
    below = [0.0] * len(rows)
    colours = plt.get_cmap("tab20")  # ten would not do
    for number, name in enumerate(SHOWN):
        share = [1e6 * _stage(r, name) / r["pending"] for r in rows]
        parts.bar(
            [f"{r['pending'] // 1000}k" for r in rows],
            share,
            bottom=below,
            label=name,
            color=colours(number),
        )
        below = [b + s for b, s in zip(below, share, strict=True)]
    parts.set(xlabel=f"pending jobs, {NODES[1]:,} nodes", ylabel="processor us per job")
    parts.legend(frameon=False, fontsize=6, ncols=2)
    for axis in (cost, memory):
        axis.grid(alpha=0.3)
    figure.savefig(out, metadata={"Date": None})


def main() -> int:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_scale")
    parser.add_argument("--results", type=Path, default=Path(".run/bench/scale.jsonl"))
    parser.add_argument("--policy", default=POLICY)
    parser.add_argument("--out", type=Path, default=Path("docs/img/scale.svg"))
    parser.add_argument("--table", action="store_true", help="Only print what was measured.")
    given = parser.parse_args()
    if not given.table:
        run(given.results, given.policy)
    known = kept(given.results)
    draw(known, given.out)
    print(
        table(known) if given.table else json.dumps([_document(f) for f in told(known)], indent=2)
    )
    return 0


def _document(figure: Figure) -> dict[str, str | float]:
    return {
        "name": figure.name, "value": figure.value, "unit": figure.unit,
        "reference": figure.reference, "ratio": figure.ratio, "source": figure.source,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
