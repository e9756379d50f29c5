"""Which nodes an administrator has drained: every replica has to know it, and no engine does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rota.core.model import Node, NodeId

PREFIX = "drained."
"""How the rows are called that say so. What follows is the node's own name, which a cluster takes
as it is."""


class Drains:
    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()

    def begin(self, rows: Mapping[str, str]) -> None:
        """Go on from what the cluster keeps."""
        self._known = frozenset(
            name.removeprefix(PREFIX)
            for name, is_so in rows.items()
            if name.startswith(PREFIX) and is_so
        )

    def look(self, nodes: Mapping[NodeId, Node | None]) -> dict[str, str]:
        """The rows that say what changed. A node that is gone is not drained any more."""
        draining = {node_id for node_id, node in nodes.items() if node and node.is_draining}
        changed = draining.symmetric_difference(self._known & nodes.keys())
        self._known = self._known - nodes.keys() | draining
        return {f"{PREFIX}{node_id}": "yes" if node_id in draining else "" for node_id in changed}

    def applied(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        return tuple(replace(node, is_draining=node.id in self._known) for node in nodes)
