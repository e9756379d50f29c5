"""The values of the scheduler: jobs, nodes, allocations, events, commands and effects.

All values are frozen dataclasses. `lifecycle` computes new versions of them, and only the kernel
keeps them. Events enter the kernel, effects with commands leave it. `units` parses the amounts that
users write (GPUs, bytes, times).

Read `job.py` first.
"""
