"""Looks at the machine again and again, for as long as the daemon lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from rota.core.model import Node, NodeId
from rota.errors import RotaError

log = structlog.get_logger()

LOOK_S = 10.0
"""How often the machine is asked whether its GPUs are still what they were."""

GATHER_S = 0.3
"""Nodes that change come together, and each concerns every plan: they are told together."""


class Looks(Protocol):
    """An engine, as far as it is needed here."""

    def inventory(self) -> tuple[Node, ...]: ...


async def watch(engine: Looks, see: Callable[[tuple[Node, ...]], None]) -> None:
    """A GPU that fails is given to nobody; one that is mended is used again. A look that fails
    says nothing about the machine: what was seen last holds until the next."""
    trouble = ""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            seen = await asyncio.to_thread(engine.inventory)
        except (OSError, RotaError) as error:
            if str(error) != trouble:
                log.warning("the machine could not be looked at; tried again", error=str(error))
            trouble = str(error)
        else:
            trouble = ""
            see(seen)


def still_drained(node: Node, nodes: Mapping[NodeId, Node]) -> Node:
    """What an administrator drained stays so, over a restart and whatever the engine sees."""
    known = nodes.get(node.id)
    return node if known is None else replace(node, is_draining=known.is_draining)
