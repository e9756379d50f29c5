"""One scheduling round: divide, size, judge, place, settle, check.

A `View` of the kernel's state and a policy enter `round.decide`; a `Plan` leaves it. `divide` sorts
jobs into pools, `sizing` calls the policy (`policy_api`), `preemption` gives each change a verdict,
`rota.core.placement` places, `defragment` makes space for a job that fits nowhere, and `plan`
checks the result.

Read `round.py` first.
"""
