"""The scheduler as pure values and functions: no I/O, clock, randomness, threads or logging.

The kernel receives events and returns effects (rows to store, commands to send). A round receives a
view of the kernel's state and a policy, and returns a plan. Time is always an argument.

Read `kernel/kernel.py` first, then `scheduling/round.py`. The subpackages are `model` (values),
`lifecycle` (one job), `kernel` (all jobs), `scheduling`, `placement`, `estimation` and `explain`.
"""
