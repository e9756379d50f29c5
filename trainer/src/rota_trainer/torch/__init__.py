"""For scripts that use torch: their whole state in one call, and stops that all workers agree on.

run = trainer.start()
state = State(run, model=model, optimizer=optimizer, scheduler=scheduler)
run.restore(state.load)
for epoch in run.epochs(90, save=state.save): ...

`live` is for trainings that go on while workers come and go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota_trainer.torch.agreement import any_worker, attach
from rota_trainer.torch.parts import OtherStateError
from rota_trainer.torch.state import State

if TYPE_CHECKING:
    from rota_trainer.live.training import Live as live  # noqa: N813

__all__ = ["OtherStateError", "State", "any_worker", "attach", "live"]


def __getattr__(name: str) -> Any:
    """`live` is imported when it is asked for: it is made of this package's own parts."""
    if name != "live":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rota_trainer.live.training import Live

    return Live
