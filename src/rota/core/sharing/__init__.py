"""Fair sharing: how many GPUs each project deserves.

The claims of projects come in: what they want, with quotas, weights and limits. The fair share of
each project goes out. This package knows nothing about jobs, nodes and rounds.

Read `fair_share.py`.
"""
