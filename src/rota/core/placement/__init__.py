"""Placement: turns numbers of workers into concrete nodes and GPUs.

A view and a list of placement requests enter `placer.place`; slots for each job, and the requests
that do not fit, leave it. `bin_packing` chooses nodes, `slot_assignment` chooses GPUs on them,
`node_matching` minimizes moves, and `cluster_capacity` tracks what is free.

Read `placer.py` first.
"""
