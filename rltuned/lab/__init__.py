"""The lab: everything that the daemon never imports. Traces are played, orders learned and judged.

    trace + cluster --> Scenario --play under a Protocol--> start times --compare--> Change
                        replay/scenario      replay/protocol                 lab/compare

A Scenario is consecutive jobs of a trace on a cluster, with their load, faults and Slurm's rules
there; a Protocol says who ranks the queue, when, and within which bounds. A window to learn from, a
held-out one, a part of a study and a site's own history are scenarios. Two orders are compared on
the same ones.

    kernel/    the compiled cluster, for numba
    replay/    scenarios through the kernel, readers of traces, metrics
    train/     learners, their data and bundles
    backtest/  a site's own history under two orders
    tune/      candidates from that history, judged on days that chose nothing
    cli/       the commands of all this

The plain simulated cluster, which the demo and dry runs need, is rltuned/sim. It is the kernel's
referee and imports nothing of the lab.
"""
