"""A training script for agents: a collective each step, until the file `finish` is in its folder.

Without torch, so that a restart costs what the agents cost: rank 0 waits at MASTER_PORT, takes a
byte from each of the others and sends it back. As with gloo, a peer that dies is an error at once.
`train.py FOLDER gloo` uses torch itself. Each process appends a line to `journal` when its first
step is done, and gives up with code 3 when the file `fail-GENERATION-RANK` is there.
"""

import atexit
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(sys.argv[1])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def peers() -> list[socket.socket]:
    if RANK == 0:
        with socket.create_server(ADDRESS, reuse_port=False) as door:
            return [door.accept()[0] for _ in range(SIZE - 1)]
    while True:
        try:
            return [socket.create_connection(ADDRESS)]
        except ConnectionRefusedError:
            time.sleep(0.01)


def plain() -> Callable[[bool], bool]:
    """Whether the training is done; rank 0 decides for all."""
    others = peers()

    def step(is_done: bool) -> bool:
        if RANK == 0:
            for each in others:
                assert each.recv(1)
            for each in others:
                each.sendall(b"01"[is_done : is_done + 1])
            return is_done
        others[0].sendall(b"x")
        answer = others[0].recv(1)
        assert answer, "rank 0 is gone"
        return answer == b"1"

    return step


def gloo() -> Callable[[bool], bool]:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    atexit.register(dist.destroy_process_group)

    def step(is_done: bool) -> bool:
        done = torch.tensor([float(is_done and RANK == 0)])
        dist.all_reduce(done)
        return bool(done.item())

    return step


def main() -> None:
    step = gloo() if "gloo" in sys.argv[2:] else plain()
    generation = os.environ.get("ROTA_GENERATION", "-")
    is_first = True
    while True:
        is_done = step((FOLDER / "finish").exists())
        if is_first:
            worker = os.environ.get("ROTA_WORKER", "-/-/-/-").split("/")[2]
            restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
            line = f"{generation} {worker} {RANK} {SIZE} {restarts}\n"
            with (FOLDER / "journal").open("a") as journal:
                journal.write(line)
            is_first = False
        if is_done:
            break
        fault = FOLDER / f"fail-{generation}-{RANK}"
        if fault.exists():
            fault.unlink()
            sys.exit(3)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
