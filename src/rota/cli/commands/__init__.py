"""The commands of `rota`, one module per subject.

In: parsed flags and arguments. Out: calls of `rota.client`, and text through `rota.cli.output`.
A module defines Typer applications, which the tables of `rota.cli.app` name. Imports at the top
of a module are only Typer and `rota.cli`; a command imports the rest when it runs.
Read `nodes` first: it is short. `daemon` holds `up`, `status` and `down`.
"""
