"""Reads the inventory of the engine at a fixed interval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from rota.core.model.node import Node, NodeId
from rota.errors import RotaError
from rota.thread_pools import DEVICES

log = structlog.get_logger()

LOOK_S = 10.0
"""Pause between two reads of the inventory."""

GATHER_S = 0.3
"""Node changes often come in groups, and each change affects every plan: collect the changes
of this time and apply them together."""


class InventorySource(Protocol):
    """The part of an engine that the watcher uses."""

    def inventory(self) -> tuple[Node, ...]: ...


async def watch(engine: InventorySource, see: Callable[[tuple[Node, ...]], None]) -> None:
    """Report the inventory again and again, so that no job gets a failed GPU and a repaired GPU is
    used again. If a read fails, the last inventory stays valid."""
    trouble = ""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            seen = await DEVICES.run(engine.inventory)
        except (OSError, RotaError) as error:
            if str(error) != trouble:
                log.warning("inventory not readable, retrying", error=str(error))
            trouble = str(error)
        else:
            trouble = ""
            see(seen)


def with_known_drain(node: Node, nodes: Mapping[NodeId, Node]) -> Node:
    """Keep the drain mark of an administrator: the engine does not know it."""
    known = nodes.get(node.id)
    return node if known is None else replace(node, is_draining=known.is_draining)
