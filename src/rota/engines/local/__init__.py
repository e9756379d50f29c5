"""The local engine: workers are processes of this machine.

In: commands of the kernel and the program of a job. Out: events about workers, the node with its
GPUs, logs and exec sessions. Each worker runs under a supervisor process (package `supervisor`),
which survives a restart of the daemon. The engine and the supervisors communicate through files
in the worker's directory and through sockets.

Read `engine.py` first, then `workers.py`. The supervisor executes this file, so it has no imports.
"""
