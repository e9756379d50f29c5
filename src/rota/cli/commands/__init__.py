"""The commands of `rota`, one module per subject.

In: parsed flags and arguments. Out: calls of `rota.client`, and text through `rota.cli.output`.
A module lists its commands in `COMMANDS`; the tables of `rota.cli.app` name the module. Imports at
the top of a module are only `rota.cli` and `rota.errors`; a command imports the rest when it runs.
Read `nodes` first: it is short. `daemon` holds `up`, `status` and `down`.
"""
