"""The supervisor: one small process per worker, which survives the daemon.

In: the directory of a worker with its spec (`program.json`). Out: log files, `exit.json`, and a
message to the daemon when the worker has started. The fork server forks supervisors; a supervisor
starts its worker, stores the output, stops the whole process tree and writes the exit record.

Read `supervisor.py` first. These modules import the standard library only, plus
`rota.engines.exit_reasons` and `rota.engines.logfiles.writer` (ADR 0012): every worker pays for
their memory. This file has no imports.
"""
