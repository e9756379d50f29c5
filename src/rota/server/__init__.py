"""Starts and composes the daemon: the only package that knows all concrete parts.

Settings come in; a running daemon with its listeners goes out. `settings` reads the settings,
`backend` and `kubernetes_backend` make the parts that differ with the place where jobs run,
`composition` builds all services from constructor arguments, and `main` runs the daemon from start
to stop. `leadership`, `standby` and `leader_label` handle several daemons on one cluster;
`doctor_probe` and `doctor_checks` check a machine. Read `main` first, then `composition`.
"""
