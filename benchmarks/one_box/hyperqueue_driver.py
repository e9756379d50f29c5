"""Drives HyperQueue for `benchmarks.one_box.hyperqueue`, in the Python that has HyperQueue.

    python hyperqueue_driver.py serve FOLDER SLOTS     the server and, with slots, its worker
    python hyperqueue_driver.py submit FOLDER          a client that takes requests, one per line

A request is a JSON object. The answer, when the request is done, is an empty line. This file must
not import the project.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

hq: Any = importlib.import_module("hyperqueue")

NOTHING = ["true"]


def serve(folder: Path, slots: int) -> None:
    cluster = hq.LocalCluster(str(folder))
    if slots:
        cluster.start_worker(importlib.import_module("hyperqueue.cluster").WorkerConfig(slots))
    (folder / "ready").touch()
    while True:
        time.sleep(3600)


def answer_requests(folder: Path) -> None:
    client = hq.Client(folder)
    for line in sys.stdin:
        answer(json.loads(line), client=client, folder=folder)
        print(flush=True)


def answer(request: dict[str, Any], *, client: Any, folder: Path) -> None:
    match request:
        case {"do": "one", "argv": argv}:
            submit(client, [argv])
        case {"do": "singles", "n": n, "clients": n_clients}:
            submit_singles(folder, n, n_clients=n_clients)
        case {"do": "many", "n": n}:
            submit(client, [NOTHING] * n)
        case {"do": "noops", "n": n}:
            run(client, n, ended=folder / "ended")
        case _:
            raise ValueError(f"no such request: {request}")


def submit(client: Any, programs: Sequence[Sequence[str]]) -> None:
    job = hq.Job()
    for argv in programs:
        job.program(list(argv))
    client.submit(job)


def submit_singles(folder: Path, n: int, *, n_clients: int) -> None:
    numbers = iter(range(n))

    def send() -> None:
        client = hq.Client(folder)
        for _ in numbers:
            submit(client, [NOTHING])

    threads = [threading.Thread(target=send) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(client: Any, n: int, *, ended: Path) -> None:
    """An additional task waits for all others, because HyperQueue's own wait polls rarely."""
    ended.unlink(missing_ok=True)
    job = hq.Job()
    tasks = [job.program(NOTHING) for _ in range(n)]
    job.program(["touch", str(ended)], deps=tasks)
    client.submit(job)
    while not ended.exists():
        time.sleep(0.001)


def main() -> None:
    match sys.argv[1:]:
        case ["serve", folder, slots]:
            serve(Path(folder), int(slots))
        case ["submit", folder]:
            answer_requests(Path(folder))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
