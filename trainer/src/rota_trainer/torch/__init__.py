"""For scripts that use torch: their whole state in one call, and stops that all workers agree on.

    run = trainer.start()
    state = State(run, model=model, optimizer=optimizer, scheduler=scheduler)
    run.restore(state.load)
    for epoch in run.epochs(90, save=state.save): ...
"""

from rota_trainer.torch.agreement import any_worker, attach
from rota_trainer.torch.parts import OtherState
from rota_trainer.torch.state import State

__all__ = ["OtherState", "State", "any_worker", "attach"]
