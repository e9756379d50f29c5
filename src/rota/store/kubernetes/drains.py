"""Tracks which nodes an administrator drained, and shares the list between replicas.

The engine does not know about drains of rota, so a new leader reads them from shared rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rota.core.model.node import Node, NodeId

PREFIX = "drained."
"""Prefix of the row names. The rest is the node name, which is valid in a key of a Secret."""


class Drains:
    """The drained nodes, as the shared rows record them."""

    def __init__(self) -> None:
        self._drained: frozenset[str] = frozenset()

    def restore(self, rows: Mapping[str, str]) -> None:
        """Load the drained nodes from the shared rows."""
        self._drained = frozenset(
            name.removeprefix(PREFIX)
            for name, is_drained in rows.items()
            if name.startswith(PREFIX) and is_drained
        )

    def changed_rows(self, nodes: Mapping[NodeId, Node | None]) -> dict[str, str]:
        """Return the rows to write after a change of nodes. A deleted node is no longer drained."""
        draining = {node_id for node_id, node in nodes.items() if node and node.is_draining}
        changed = draining.symmetric_difference(self._drained & nodes.keys())
        self._drained = self._drained - nodes.keys() | draining
        return {f"{PREFIX}{node_id}": "yes" if node_id in draining else "" for node_id in changed}

    def applied(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Return the nodes with their drain state."""
        return tuple(replace(node, is_draining=node.id in self._drained) for node in nodes)
