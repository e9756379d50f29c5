"""What workers hold of the memory of GPUs, by the processes that the driver names."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.core.model import GIB, JobId
from rota.engines.base import WorkerId
from rota.engines.local import procs
from rota.engines.local.gpus import NvmlGpus
from rota.engines.local.order import Fence
from tests.integration.engine.box import Box, on_a_box, sh
from tests.unit.engines import fake_nvml
from tests.unit.engines.fake_nvml import Card


@contextmanager
def stranger(**env: str) -> Iterator[int]:
    """A process that is nobody's worker, whatever it carries."""
    with subprocess.Popen(["/bin/sleep", "1000"], env=env) as process:
        yield process.pid
        process.kill()


@on_a_box
async def test_memory_belongs_to_the_worker_whose_marker_a_process_carries(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    await box.run_until_it_says("job", "ready", sh("sleep 1000 & echo ready; wait"))
    order = box.folders.order(Fence("job", 1, 0))
    assert order is not None
    main, child = sorted(procs.marked(order.marker))[-2:]
    with stranger(ROTA_WORKER="job/1/0/guessed") as pid:
        cards = [
            Card("GPU-a", held={main: GIB, pid: 8 * GIB, 2**22 + 1: GIB}),
            Card("GPU-b", held={child: 2 * GIB, main: None}),
        ]
        monkeypatch.setattr(fake_nvml, "cards", cards)
        await box.restart(NvmlGpus(fake_nvml))
        await box.adopt()
        assert box.engine.held_on_cards() == {WorkerId(JobId("job"), 1, 0): 3 * GIB}
