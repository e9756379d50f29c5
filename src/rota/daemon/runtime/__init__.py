"""Runs the kernel: writes its effects to the store, sends its commands to the engine.

Events of the engine and of the services come in; rows for the store and commands for the engine go
out, and requests that wait for a change are woken. `controller` owns the kernel, `scheduling_loop`
decides when a round runs, `health` handles failures of the disk, `job_reader` names what other
packages may ask. Read `controller` first.
"""
