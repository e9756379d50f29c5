"""rota schedules training jobs on shared GPUs.

`core` is the scheduler as pure code, `policies` sizes jobs, `engines` runs workers, `store` keeps
state, `daemon` joins them, and `server` builds a daemon. Users come in through `api`, `client` and
`cli` with the messages of `wire`, Kubernetes objects through `operator` and `kube`. `simulator`
runs the same scheduler in virtual time. Read `core.kernel` and `core.scheduling.round` first.
"""

__version__ = "0.1.0"
