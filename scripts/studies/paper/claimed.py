"""What the papers claim: their figures as numbers, in our own order."""

from typing import Final

Table = dict[str, dict[str, float]]


def _row(bsld: float, wait: float, jct: float, utilisation: float) -> dict[str, float]:
    return {"bsld": bsld, "wait": wait, "jct": jct, "utilisation": utilisation}


SLICE: Final = "theirs plays a whole cluster's arrivals on a slice, here at most twice its GPUs"
SPAN: Final = "the jobs of a window are given, so its utilisation is its makespan"

AGAINST_BASES: Final[tuple[tuple[str, str, str, str, float, str], ...]] = (
    ("Figure 12", "philly", "fcfs", "wait", -0.875, SLICE),
    ("Figure 12", "alibaba", "sjf", "wait", 0.0, "`nearly nil`"),
    ("Table 7", "helios", "fcfs", "wait", -0.1495, ""),
    ("Table 7", "helios", "sjf", "wait", -0.0222, ""),
    ("Table 7", "helios", "f1", "wait", -0.0473, ""),
    ("Table 7", "helios", "wfp3", "wait", -0.1183, "theirs is close to longest first"),
    ("Figure 14", "helios", "f1", "bsld", -0.0528, ""),
    ("Figure 14", "alibaba", "sjf", "bsld", -0.7232, "SJF by limits leaves little to gain here"),
    ("Figure 15", "philly", "fcfs", "jct", -0.7068, "run times are most of it at these loads"),
    ("Figure 15", "alibaba", "f1", "jct", 0.013, ""),
    ("Table 6", "philly", "fcfs", "utilisation", 0.0483, SPAN),
    ("Table 6", "philly", "sjf", "utilisation", 0.0344, SPAN),
    ("Table 6", "philly", "f1", "utilisation", 0.1362, SPAN),
    ("Table 6", "helios", "fcfs", "utilisation", 0.0100, SPAN),
    ("Table 6", "helios", "sjf", "utilisation", 0.1971, SPAN),
    ("Table 6", "helios", "f1", "utilisation", 0.0195, SPAN),
    ("Table 6", "alibaba", "fcfs", "utilisation", 0.0240, SPAN),
    ("Table 6", "alibaba", "sjf", "utilisation", 0.1130, SPAN),
    ("Table 6", "alibaba", "f1", "utilisation", 0.0128, SPAN),
)
"""Where, cluster, base, metric, change, note."""

TABLE_8: Final[Table] = {
    "qssf": _row(28.17, 3748.14, 35567.97, 4.72),
    "rltune": _row(20.11, 2830.01, 33199.58, 4.97),
}
FIGURE_17_JCT: Final = -0.4843
FIGURE_16_BSLD: Final = {"philly": -0.7154, "helios": -0.8118}

TABLE_9: Final[dict[str, Table]] = {
    "philly": {
        "fcfs": _row(1298.06, 142391.50, 169650.84, 4.63),
        "schedinspector": _row(1114.52, 120623.63, 150347.88, 4.85),
        "rlscheduler": _row(491.92, 86512.85, 112022.08, 4.64),
        "rltune": _row(232.82, 34199.93, 85761.51, 4.85),
    },
    "helios": {
        "fcfs": _row(161.77, 7264.58, 10483.16, 4.03),
        "schedinspector": _row(152.16, 7187.54, 10715.42, 4.00),
        "rlscheduler": _row(117.83, 6178.47, 9211.55, 4.01),
        "rltune": _row(75.24, 4335.87, 7541.40, 4.09),
    },
    "alibaba": {
        "fcfs": _row(88.32, 14306.14, 19219.08, 0.08),
        "schedinspector": _row(89.52, 14470.00, 19382.94, 0.09),
        "rlscheduler": _row(52.18, 9641.81, 14554.75, 0.06),
        "rltune": _row(44.05, 8726.45, 13639.38, 0.09),
    },
}

TABLE_7: Final[dict[str, dict[str, float]]] = {
    "fcfs": {"sjf": -0.0229, "f1": -0.0473, "wfp3": -0.1732},
    "sjf": {"fcfs": -0.1422, "f1": -0.0470, "wfp3": -0.1523},
    "f1": {"fcfs": -0.1491, "sjf": -0.0166, "wfp3": -0.1381},
    "wfp3": {"fcfs": -0.0376, "sjf": 0.0401, "f1": 0.0431},
}
"""Helios, wait: trained from, judged against; its diagonal is in AGAINST_BASES."""

TESTBED: Final = {"makespan": -0.248, "wait": -0.305, "utilisation": 0.039}
"""Figures 18 and 19: 1,024 jobs on a Slurm of 13 GPUs."""

SENTENCES: Final = (
    ("philly", "conclusion: wait against RLScheduler", -0.35),
    ("helios", "section 5: wait against RLScheduler", -0.433),
)
"""Cluster, words, claim; Table 9 says something else."""
SITUATIONS: Final = (
    ("whole-guided", "whole", "jobs take whole nodes, as on theirs; OverSubscribe guidance"),
    ("site", "multifactor", "the order alone, where jobs share nodes"),
)
"""Arms of the experiment on real Slurms that stand for the testbed."""
RIGID: Final = "theirs resizes running jobs, which shortens run times; an order changes waits alone"
DL2: Final = {
    "fcfs": (7.12 / 14.22 - 1.0, ""),
    "sjf": (-0.413, f"its own figures have {8.56 / 13.61 - 1.0:+.1%}"),
}
"""Completion time after PPO over that of the imitated order, and what contradicts it."""
DL2_DRF, DL2_OFFLINE = -0.441, -0.379
DL2_OPTIMUS: Final = (-0.175, f"its own figures have {5.724 / 7.318 - 1.0:+.1%}")
WORL: Final = (
    ("best of 470 comparisons, RL-Hybrid", -0.6656, "first free"),
    ("mean against RL-Hybrid, its weakest peer", -0.324, "first free"),
    ("mean against DRAS, its strongest peer", -0.079, "heft"),
)
"""Words, claim, and the planner that stands here for the peer."""
