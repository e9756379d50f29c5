"""A training script for the tests: it writes each step to a journal. While a file `slowly` exists
beside the journal, the steps are slow.

    python worker.py JOURNAL '{"epochs": 3, ...}'
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rota_trainer as trainer
from rota_trainer.elastic import process_group, rendezvous, tcp_store
from rota_trainer.torch import live as live_training

DEFAULTS = {
    "epochs": 3,
    "samples": 203,
    "batch": 24,
    "model": "plain",
    "step_s": 0.05,
    "width": 8,
    "scaling": "constant",
    "save_every_s": 600.0,
    "patience_s": 60.0,
    "torch": "",
    "code": "test",
    "journal_hash": True,
    "fails_at": -1,
    "times": False,
    "loader": {},
    "saves_for_ever": False,
    "connects_late": False,
    "breaks_ending": False,
    "dies_ending": False,
    "opens_for_s": 10.0,
    "goes_at_opening": 0,
}


class Numbered(torch.utils.data.Dataset):
    def __init__(self, length: int) -> None:
        chance = torch.Generator().manual_seed(3)
        self.x = torch.randn(length, 6, generator=chance)
        self.y = torch.randn(length, 1, generator=chance)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple:
        return self.x[index], self.y[index], index


def make_model(kind: str, width: int) -> nn.Module:
    middle = nn.BatchNorm1d(width) if kind == "normed" else nn.Tanh()
    last = nn.Linear(width, 1)
    wide = [nn.Linear(width, width) for _ in range(4)] if kind == "wide" else []
    return nn.Sequential(nn.Linear(6, width), middle, *wide, last)


def main() -> None:
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    slowly = Path(sys.argv[1]).parent / "slowly"
    options = {**DEFAULTS, **json.loads(sys.argv[2])}
    torch.set_num_threads(1)
    if options["torch"]:
        torch.__version__ = options["torch"]
    torch.manual_seed(0)
    run = trainer.start(code=options["code"])
    net = make_model(options["model"], options["width"])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    live = live_training(
        run,
        model=net,
        optimizer=optimizer,
        scheduler=scheduler,
        dataset=Numbered(options["samples"]),
        batch_size=options["batch"],
        batch_scaling=options["scaling"],
        save_every_s=options["save_every_s"],
        patience_s=options["patience_s"],
        loader=options["loader"],
    )

    def note(**words: object) -> None:
        line = {"at_s": time.time(), "worker": run.environment.worker, **words}
        os.write(journal, json.dumps(line).encode() + b"\n")

    arrange_mishaps(live, options, note)
    for epoch in live.epochs(options["epochs"]):
        for x, y, indices in live.batches():
            began_s, began_cpu_s = time.perf_counter(), time.thread_time()
            with live.step():
                begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
                if live.global_step == options["fails_at"]:
                    raise RuntimeError("the script's own mistake")
                draw = torch.rand(()).item()
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(live.model(x), y)
                loss.backward()
                optimizer.step()
                weight = live.model.weight
                note(
                    step=live.global_step + 1,
                    epoch=epoch,
                    generation=live.generation,
                    rank=live.rank,
                    size=live.size,
                    samples=indices.tolist() if weight else [],
                    loss=weight * loss.item(),
                    rate=optimizer.param_groups[0]["lr"],
                    draw=draw,
                )
                if slowly.exists():
                    time.sleep(options["step_s"])
                ended_s, ended_cpu_s = time.perf_counter(), time.thread_time()
            if options["times"]:
                over_s, over_cpu_s = time.perf_counter(), time.thread_time()
                note(
                    hooks_s=begun_s - began_s + over_s - ended_s,
                    hooks_cpu_s=begun_cpu_s - began_cpu_s + over_cpu_s - ended_cpu_s,
                )
            if options["journal_hash"]:
                note(done=live.global_step, generation=live.generation, hash=hash_of(net))
        scheduler.step()
        note(over=epoch)
    n_tracked = next((int(each) for each in net.buffers() if each.dtype == torch.int64), 0)
    note(
        ended=live.global_step,
        n_tracked=n_tracked,
        hash=hash_of(net),
        rate=optimizer.param_groups[0]["lr"],
    )


def arrange_mishaps(live: Any, options: dict, note: Callable[..., None]) -> None:
    """Install failures at moments that cannot be hit from outside."""
    if options["saves_for_ever"]:
        live._checkpointer.save = lambda: (note(saving=True), signal.pause())
    if options["connects_late"]:
        connect_late()
    process_group.OPEN_S = options["opens_for_s"]
    if options["goes_at_opening"]:
        go_at_opening(options["goes_at_opening"])
    if options["breaks_ending"]:
        break_ending(live, Path(sys.argv[1]).parent / "0.journal")
    if options["dies_ending"]:
        die_ending(live)


def connect_late() -> None:
    """Fail the first connection attempt, as if a packet was lost."""
    connect = tcp_store.connect

    def fail(address: str) -> None:
        tcp_store.connect = connect
        raise RuntimeError(f"cannot connect to {address}")

    tcp_store.connect = fail


def go_at_opening(number: int) -> None:
    """Send this signal to the worker after the rendezvous, while workers wait for connections."""
    open_group = rendezvous.open_group

    def go(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), number)
        return open_group(*arguments, **options)

    rendezvous.open_group = go


def break_ending(live: Any, journal: Path) -> None:
    """At the end of the first epoch, close the connections of this worker after the first worker
    has received everything from it and has continued."""
    share = live.model.broadcast_buffers
    n_ends = 0

    def share_and_break() -> None:
        nonlocal n_ends
        share()
        # After the last step, when all workers end the epoch together.
        n_ends += live._state.progress.used == live._samples.length
        if n_ends == 2:
            n_ends += 1
            live._votes.cast(live._rendezvous.group, live._requests())
            live._votes._vote.result()
            while '"over": 0' not in journal.read_text():
                time.sleep(0.01)
            live._rendezvous.group.abort()
            raise RuntimeError("connection reset")

    live.model.broadcast_buffers = share_and_break


def die_ending(live: Any) -> None:
    """The worker kills itself where all workers end the first epoch together."""
    end_together = live._end_together

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        end_together()

    live._end_together = die


def hash_of(net: nn.Module) -> str:
    """A hash of the parameters and of the statistics of layers."""
    digest = hashlib.sha256()
    for each in net.state_dict().values():
        digest.update(each.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main()
