"""Scheduling policies: each policy decides how many workers every job of a pool gets.

Jobs and a budget of GPUs enter `size()`; a number of workers for each job leaves it. Each policy is
one module. `registry` finds policies by name, `parameters` describes and checks their parameters,
and `greedy`, `multilevel_queue`, `knapsack` and `afs_contest` hold the algorithms that the policies
use.

Read `fifo.py` first, then `registry.py`.
"""
