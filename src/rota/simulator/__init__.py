"""Simulates a trace of jobs on a described cluster, with the production scheduler in virtual time.

In: a trace (`traces`), a cluster description (`cluster_spec`) and a policy.
Out: a `SimulationRun` with the outcome of every job, its `RunMetrics`, and an HTML report
(`report`).

Read `runner` first. `workload` defines the jobs of a trace, `recorder` collects the outcomes, and
`metrics` and `fairness` compute the measures. There is no second scheduler here: the runner drives
the same kernel as the daemon.
"""
