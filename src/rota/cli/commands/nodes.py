"""`rota nodes`: lists nodes, and drains, resumes or gives up one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import complete
from rota.cli.options import AsJson

if TYPE_CHECKING:
    from rota.wire.daemon import NodeView


nodes_app = typer.Typer(help="List nodes and their GPUs; drain and resume nodes.")
Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="Node name; see 'rota nodes list'.",
        show_default=False,
        autocompletion=complete.nodes,
    ),
]


@nodes_app.command(name="list")
def list_nodes(*, as_json: AsJson = False) -> None:
    """List nodes, their GPUs, and the jobs on each GPU."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.nodes(), as_json=as_json)


@nodes_app.command()
def drain(node: Node, *, as_json: AsJson = False) -> None:
    """Take a node out of use and move its jobs to other nodes."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.drain(node), as_json=as_json)


@nodes_app.command()
def resume(node: Node, *, as_json: AsJson = False) -> None:
    """Put a drained node back into use."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.resume(node), as_json=as_json)


@nodes_app.command()
def lost(node: Node, *, as_json: AsJson = False) -> None:
    """Give up an unreachable node and restart its jobs elsewhere."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.lose(node), as_json=as_json)


def _print_nodes(nodes: list[NodeView], *, as_json: bool) -> None:
    from rota.cli.output.console import print_json
    from rota.cli.output.nodes import print_nodes

    if as_json:
        print_json([asdict(node) for node in nodes])
    else:
        print_nodes(nodes)
