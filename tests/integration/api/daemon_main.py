"""A real daemon for the tests of its API, as a program: virtual GPUs, any client timeouts.

python -m tests.integration.api.daemon_main FOLDER PORT PATIENCE
"""

import asyncio
import sys
from functools import partial
from pathlib import Path

import uvloop

from rota.api.listeners import TcpAddress
from rota.api.uvicorn_protocol import ClientTimeouts
from rota.core.model.units import GIB
from rota.core.scheduling.view import Rules
from rota.daemon.jobs.admission import Defaults
from rota.daemon.launch.checkpoint_dirs import parse_checkpoint_dirs
from rota.daemon.runtime.process_lock import hold_process_lock
from rota.engines.local.gpus import VirtualGpus
from rota.log_setup import log_to_stderr
from rota.server.backend import local_backend
from rota.server.main import serve
from rota.server.settings import Settings


def settings(folder: Path, port: int, *, timeouts: ClientTimeouts) -> Settings:
    return Settings(
        folder=folder,
        store_file=folder / "rota.db",
        backend=partial(
            local_backend,
            gpus=VirtualGpus(4, 16 * GIB),
            checkpoints=parse_checkpoint_dirs("", folder=folder),
        ),
        policy="elastic-fifo",
        policy_file=folder / "policy",
        rules=Rules(),
        defaults=lambda _: Defaults(),
        listen=TcpAddress("127.0.0.1", port),
        timeouts=timeouts,
    )


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    timeouts = ClientTimeouts(*(float(each) for each in sys.argv[3].split(",")))
    log_to_stderr()
    chosen = settings(folder, port, timeouts=timeouts)
    with hold_process_lock(folder), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(chosen, ready=(folder / "ready").touch))


if __name__ == "__main__":
    main()
