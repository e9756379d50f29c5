"""A real daemon for the tests of its doors, as a program: virtual GPUs, any patience.

python -m tests.integration.api.daemon FOLDER PORT PATIENCE
"""

import asyncio
import sys
from functools import partial
from pathlib import Path

import uvloop

from rota.api.places import this_machine
from rota.api.serve import Settings, serve
from rota.api.server import Patience
from rota.core.model import GIB
from rota.core.view import Rules
from rota.daemon.admission import Defaults
from rota.daemon.checkpoints import parse
from rota.daemon.lock import only_one
from rota.engines.local.gpus import VirtualGpus
from rota.observe import log_to_stderr


def settings(folder: Path, port: int, *, patience: Patience) -> Settings:
    return Settings(
        folder=folder,
        store_file=folder / "rota.db",
        place=partial(
            this_machine,
            gpus=VirtualGpus(4, 16 * GIB),
            checkpoints=parse("", folder=folder),
        ),
        policy="elastic-fifo",
        policy_file=folder / "policy",
        rules=Rules(),
        defaults=lambda _: Defaults(),
        listen=("127.0.0.1", port),
        patience=patience,
    )


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    patience = Patience(*(float(each) for each in sys.argv[3].split(",")))
    log_to_stderr()
    chosen = settings(folder, port, patience=patience)
    with only_one(folder), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(chosen, ready=(folder / "ready").touch))


if __name__ == "__main__":
    main()
