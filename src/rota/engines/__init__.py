"""Engines: they start, stop and observe the workers of jobs.

In: commands of the kernel (`rota.core.model.commands`) and the program of a job. Out: events about
workers (started, exited, lost), the list of nodes, logs and sessions. An engine reports facts and
takes no scheduling decisions. `local` runs processes on this machine, `kubernetes` runs pods,
`virtual` runs nothing and computes events in virtual time; `logfiles` stores worker output.

Read `interface.py` first. Supervisors import this package, so this file has no imports.
"""
