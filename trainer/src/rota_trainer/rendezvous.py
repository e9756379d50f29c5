"""`torchrun --rdzv-backend rota`: the entry point by which torchrun finds us.

It is imported by every program that imports torch's elastic package, so it imports nothing itself.
"""

from __future__ import annotations

from typing import Any, Callable

BACKEND = "rota"


def torchrun_handler() -> Callable[[Any], Any]:
    """What torchrun registers under our name: makes a handler of its `RendezvousParameters`."""
    return _create


def _create(parameters: Any) -> Any:
    from rota_trainer import torch_agent
    from rota_trainer.torch_rendezvous import RotaRendezvous, Wishes

    torch_agent.adapt()
    return RotaRendezvous(Wishes.of(parameters))
