"""One scheduling round: divide, size, place, guard, check.

A `View` of the kernel's state and a policy enter `round.decide`; a `Plan` leaves it. Each step has
its own module: `quota` and `gpu_type_choice` divide, `sizing` calls the policy (`policy_api`),
`rota.core.placement` places, `preemption` and `defragment` decide which changes are worth their
cost, and `plan` checks the result. `leftovers` serves policies that share what is left over.

Read `round.py` first.
"""
