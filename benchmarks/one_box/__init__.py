"""Compares rota with other schedulers of one machine: `python -m benchmarks.one_box`.

`peer` defines the protocol, `measurements` uses it, and each other module drives one scheduler.
`hyperqueue_driver` runs in another Python and imports nothing of this project.
"""
