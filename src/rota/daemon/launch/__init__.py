"""Prepares the start of a job: builds the program, account, environment, mounts and folders.

A stored submission comes in when the engine starts a job; a `Program` for the engine goes out.
`environment` is the interface that differs between this machine (`local`) and a cluster
(`cluster`). Read `launcher` first.
"""
