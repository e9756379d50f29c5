"""Durable state: jobs, attempts, workers, the audit log, users, tokens, usage and profiles.

In: a `Batch` of changes from the daemon, written as one transaction.
Out: the state to recover from after a restart, and answers to queries of the API.

`interface` defines the protocol; read it first, then `records` for the stored values. `sqlite`
keeps everything in one file, `kubernetes` keeps jobs in TrainingJob objects, `memory` serves
tests. `codec`, `attempt_history` and `retention` are rules that all stores share.
"""
