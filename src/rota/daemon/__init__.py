"""The daemon: all that happens between the HTTP API and the engines.

Requests of callers and reports of workers come in from `api` and `operator`; events for the
kernel, rows for the store and commands for the engine go out. `runtime` runs the kernel, `jobs`
serves callers, `access` decides what callers may do, `launch` prepares programs, `artifacts` keeps
shipped code, `training` and `elastic` talk to workers, `diagnosis` explains failures, `migration`
moves jobs to other daemons, `cluster_service` shows and drains nodes and sets the policy, and
`submit_plan_service` answers dry runs of a submit.
Read `runtime.controller` first, then `jobs.job_service`.
"""
