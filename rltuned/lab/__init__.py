"""The lab: everything that the daemon never imports. Traces are played, orders learned and judged.

    kernel/    the compiled cluster, for numba
    replay/    traces through the kernel, their readers, metrics
    train/     learners, their data and bundles
    backtest/  a site's own history under two orders
    tune/      candidates from that history, judged on days that chose nothing
    cli/       the commands of all this
    report/    charts for their pages

The plain simulated cluster, which the demo and dry runs need, is rltuned/sim. It is the kernel's
referee and imports nothing of the lab.
"""
