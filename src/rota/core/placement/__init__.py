"""Placement: turns numbers of units into concrete nodes and GPUs.

One ordered list of wishes (`wish`) enters `placer.place`; a `Placement` leaves it: the slots of all
jobs, and the wishes that do not fit. `slots` chooses nodes and GPUs, and `capacity` tracks what is
free. This package knows nothing about policies and rounds.

Read `placer.py` first.
"""
