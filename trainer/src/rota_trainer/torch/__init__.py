"""torch integration: save and load the whole training state; stop all workers at the same step.

    run = trainer.start()
    state = State(run, model=model, optimizer=optimizer, scheduler=scheduler)
    run.restore(state.load)
    for epoch in run.epochs(90, save=state.save): ...

`live` trains with a number of workers that changes while the job runs (package `elastic`).
Read `state` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota_trainer.torch.agreement import any_worker, attach
from rota_trainer.torch.components import OtherStateError
from rota_trainer.torch.state import State

if TYPE_CHECKING:
    from rota_trainer.elastic.trainer import ElasticTrainer as live  # noqa: N813

__all__ = ["OtherStateError", "State", "any_worker", "attach", "live"]


def __getattr__(name: str) -> Any:
    """Import `live` on first use: the package `elastic` imports modules of this package."""
    if name != "live":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rota_trainer.elastic.trainer import ElasticTrainer

    return ElasticTrainer
