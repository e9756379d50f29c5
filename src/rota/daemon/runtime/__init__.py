"""Runs the kernel: writes its effects to the store, sends its commands to the engine.

Events of the engine and of the services come in; rows for the store, commands for the engine and
news for waiting requests go out. `controller` owns the kernel, `scheduling_loop` decides when a
round runs, `health` handles failures of the disk, `job_reader` names what other packages may ask.
Read `controller` first.
"""
