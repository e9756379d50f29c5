"""Gathers the nouns of the command line. `rota.cli.main` loads it once Ctrl-C is in good hands."""

from __future__ import annotations

import typer

from rota.cli import box, enter, jobs, logs, policy, simulate, store, submit, up

app = typer.Typer(
    name="rota",
    help="Shares a lab's GPUs between the people who train on them.",
    epilog="Exit codes: 0 done, 1 could not be done, 2 wrong input, 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for noun in (up, box, submit, jobs, logs, enter):
    app.add_typer(noun.app)
app.add_typer(box.nodes_app, name="nodes")
app.add_typer(simulate.app)
app.add_typer(policy.app, name="policy")
app.add_typer(store.app, name="store")


@app.callback()
def rota() -> None:
    """Makes a group of it, however few commands there are."""
