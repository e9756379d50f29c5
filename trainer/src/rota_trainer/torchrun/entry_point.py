"""The entry point of `torchrun --rdzv-backend rota`.

Every program that imports torch's elastic package imports this module, so it must import nothing
else at module level.
"""

from __future__ import annotations

from typing import Any, Callable

BACKEND = "rota"


def torchrun_handler() -> Callable[[Any], Any]:
    """The factory that torchrun registers: makes a handler from `RendezvousParameters`."""
    return _create_handler


def _create_handler(parameters: Any) -> Any:
    from rota_trainer.torchrun import agent
    from rota_trainer.torchrun.handler import RendezvousOptions, RotaRendezvous

    agent.patch_agent()
    return RotaRendezvous(RendezvousOptions.of(parameters))
