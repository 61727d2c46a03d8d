"""A bundle whose network imitates an order: learned, measured on unseen queues, exported."""

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rltuned.lab.train.export import export_bundle
from rltuned.lab.train.imitation import Fitting, OrderedQueues, agreement, fit
from rltuned.lab.train.ranges import ranges_shown
from rltuned.policies.card import Training

PARITY_WINDOWS: Final = 4


def imitate_into(
    out: Path,
    queues: tuple[OrderedQueues, OrderedQueues],
    fitting: Fitting,
    *,
    order: str,
    data: str,
    command: str,
    on_epoch: Callable[[float], None] | None = None,
) -> float:
    """Fit a network and export it; the share of the held-out pairs that it has right.

    queues: to learn from, and held out. order, data, command: for the card, whose order, of what,
    and by which command.

    Raises:
        FloatingPointError: the loss is no longer finite.
        ModelError: the folder exists, or cannot be written.
    """
    learned, held_out = queues
    began = time.perf_counter()
    network, losses = fit(learned, fitting, on_epoch)
    _, mean, lowest = agreement(network, held_out)
    values, masks = held_out.values, held_out.masks
    results = {
        "held_out_pairwise_agreement": mean,
        "held_out_lowest_queue_agreement": lowest,
        "loss_first_epoch": losses[0],
        "loss_last_epoch": losses[-1],
    }
    export_bundle(
        out,
        network,
        name=out.name,
        summary=f"Warm start: the order of {order}, learned from {data}.",
        parity=(values[:PARITY_WINDOWS], masks[:PARITY_WINDOWS]),
        training=Training(
            method="supervised imitation, pairwise logistic loss",
            teacher=order,
            command=command,
            settings=fitting.described() | {"learned": len(learned), "held_out": len(held_out)},
            data=data,
            data_licence="generated, or the site's own",
            seed=fitting.seed,
            seconds=round(time.perf_counter() - began, 1),
            machine=f"{platform.machine()}, one thread",
        ),
        results={name: round(value, 5) for name, value in results.items()},
        caveats=[
            f"It imitates {order}, can at best be as good, and claims no result.",
            "Agreement was measured on queues of the same origin as those that it learned from.",
        ],
        ranges=ranges_shown(network.kind, values, masks),
    )
    return mean
