"""Changes of a job's workers while it runs: live training and torchrun.

In: commands of the controller about the wanted members, reports of live workers, and requests of
torchrun agents. Out: the order to switch to a generation, rendezvous assignments, and the event
`MembershipChanged` when a generation has formed. Read `membership` first; `worker_group` and
`generation_rules` are for live jobs; `torchrun_rendezvous`, `barrier`, `barrier_session` and
`kv_store` are for torchrun.
"""
