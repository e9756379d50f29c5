"""Trains in mode `live`. Writes the times of steps, of hooks and of receiving the state."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn

import rota_trainer as trainer
from benchmarks.elastic.network import BATCH, network, samples
from benchmarks.elastic.stamps import STEP_S, Stamps, began_s
from rota_trainer.elastic import state_broadcast
from rota_trainer.torch import live as live_training


def main() -> None:
    stamps = Stamps()
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    state_broadcast.receive = timed(state_broadcast.receive, stamps)
    stamps.put("ready", began_s())
    run = trainer.start()
    live = live_training(run, model=net, optimizer=optimizer, dataset=samples(), batch_size=BATCH)
    end, inside = Hooks(), Hooks()
    live.model.before_sharing = counted(live.model.before_sharing, inside)
    for _ in live.epochs(10**6):
        for x, y in live.batches():
            begin = Hooks()
            inside.reset()
            with live.step():
                begin.over()
                optimizer.zero_grad()
                nn.functional.mse_loss(live.model(x), y).backward()
                optimizer.step()
                time.sleep(STEP_S)
                if end.is_over:
                    each = (begin, inside, end)
                    cost = (sum(one.clock_s for one in each), sum(one.processor_s for one in each))
                    stamps.put("hooks", live.size, *cost)
                stamps.put("step", live.size, live.rank)
                end = Hooks()
            end.over()


class Hooks:
    """Time from here until it is over, by the clock and of the processor. The clock is read last
    and first: to ask for the processor's time is a system call, which is not ours."""

    def __init__(self) -> None:
        self.processor_s = -time.thread_time()
        self.clock_s = -time.perf_counter()
        self.is_over = False

    def reset(self) -> None:
        self.clock_s = self.processor_s = 0.0

    def goes_on(self) -> None:
        self.processor_s -= time.thread_time()
        self.clock_s -= time.perf_counter()

    def over(self) -> None:
        self.clock_s += time.perf_counter()
        self.processor_s += time.thread_time()
        self.is_over = True


def counted(hook: Callable[[], None], hooks: Hooks) -> Callable[[], None]:
    """Measure the hook that runs in the middle of a step, when gradients are ready."""

    def measured() -> None:
        hooks.goes_on()
        hook()
        hooks.over()

    return measured


def timed(receive: Callable[..., Any], stamps: Stamps) -> Callable[..., Any]:
    @wraps(receive)
    def measured(**options: Any) -> Any:
        began_s = time.perf_counter()
        state = receive(**options)
        seconds = time.perf_counter() - began_s
        stamps.put("received", transfer_bytes(state), seconds)
        return state

    return measured


def transfer_bytes(state: Any) -> int:
    tensors: list[torch.Tensor] = []
    state_broadcast.split_tensors(state, tensors)
    return sum(tensor.nbytes for tensor in tensors)


if __name__ == "__main__":
    main()
