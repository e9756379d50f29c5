"""An engine without nodes, on which no job ever starts."""

from collections.abc import Sequence
from typing import Any, cast

from rota.core.model.commands import Command
from rota.core.model.node import Node
from rota.engines.interface import Engine, EventSink, Program


class _IdleEngine:
    async def start(self, facts: EventSink) -> None: ...

    async def adopt(self) -> None: ...

    async def close(self) -> None: ...

    def inventory(self) -> Sequence[Node]:
        return ()

    async def apply(self, command: Command, program: Program | None) -> None: ...


def idle_engine() -> Engine:
    return cast("Any", _IdleEngine())
