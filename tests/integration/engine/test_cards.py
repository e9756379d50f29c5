"""GPU memory per worker, from the processes that the driver reports."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.core.model.job import JobId
from rota.core.model.units import GIB
from rota.engines.interface import WorkerId
from rota.engines.local.gpus import NvmlGpus
from rota.engines.local.supervisor import proc
from rota.engines.local.supervisor.records import WorkerKey
from tests.integration.engine.box import Box, on_a_box, sh
from tests.support.processes import started
from tests.unit.engines import fake_nvml
from tests.unit.engines.fake_nvml import Card


@contextmanager
def foreign_process(**env: str) -> Iterator[int]:
    """A process with a marker that belongs to no worker."""
    with started(["/bin/sleep", "1000"], env=env) as process:
        yield process.pid


@on_a_box
async def test_gpu_memory_is_attributed_by_marker(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    await box.run_until_output("job", "ready", sh("sleep 1000 & echo ready; wait"))
    spec = box.folders.spec(WorkerKey("job", 1, 0))
    assert spec is not None
    main, child = sorted(proc.with_marker(spec.marker))[-2:]
    with foreign_process(ROTA_WORKER="job/1/0/guessed") as pid:
        cards = [
            Card("GPU-a", held={main: GIB, pid: 8 * GIB, 2**22 + 1: GIB}),
            Card("GPU-b", held={child: 2 * GIB, main: None}),
        ]
        monkeypatch.setattr(fake_nvml, "cards", cards)
        await box.restart(NvmlGpus(fake_nvml))
        await box.adopt()
        assert box.engine.gpu_memory_by_worker() == {WorkerId(JobId("job"), 1, 0): 3 * GIB}
