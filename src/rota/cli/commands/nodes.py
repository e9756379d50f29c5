"""`rota nodes`: lists nodes, and drains, resumes or gives up one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli import complete
from rota.cli.command import CommandArgument, command
from rota.cli.options import JSON

if TYPE_CHECKING:
    from rota.wire.daemon import NodeView


HELP = "List nodes and their GPUs; drain and resume nodes."
NODE = CommandArgument(
    "node", metavar="NODE", text="Node name; see 'rota nodes list'.", complete=complete.nodes
)


@command("list", JSON)
def list_nodes(*, as_json: bool) -> None:
    """List nodes, their GPUs, and the jobs on each GPU."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.nodes(), as_json=as_json)


@command("drain", NODE, JSON)
def drain(*, node: str, as_json: bool) -> None:
    """Take a node out of use and move its jobs to other nodes."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.drain(node), as_json=as_json)


@command("resume", NODE, JSON)
def resume(*, node: str, as_json: bool) -> None:
    """Put a drained node back into use."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.resume(node), as_json=as_json)


@command("lost", NODE, JSON)
def lost(*, node: str, as_json: bool) -> None:
    """Give up an unreachable node and restart its jobs elsewhere."""
    from rota.client import Client

    with Client() as rota:
        _print_nodes(rota.lose(node), as_json=as_json)


def _print_nodes(nodes: list[NodeView], *, as_json: bool) -> None:
    from rota.cli.output.nodes import print_nodes

    print_nodes(nodes, as_json=as_json)


COMMANDS = (list_nodes, drain, resume, lost)
