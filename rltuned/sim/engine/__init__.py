"""The compiled world: events, passes, features, networks and the daemon's cycles, for long traces.

It knows no node failures and no joint placement. The plain world (sim/world, sim/dispatch) with
`core.decide` is the definition that people read; tests hold the two equal, start by start, node by
node and write by write, on random worlds.
"""
