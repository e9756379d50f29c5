"""Clean-up of containers with a tool that waits for a service that never answers."""

import os
import shutil
import signal
import socket
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rota.engines.interface import Program
from rota.engines.local import container_network, worker_spec, workers
from rota.engines.local import engine as local_engine
from rota.engines.local.container_network import connect_in
from rota.remains import RemainsRecord
from tests.integration.engine.box import Box, on_a_box
from tests.integration.engine.conftest import IMAGE
from tests.integration.engine.test_containers import HOST_PROGRAMS

WAITS = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
STAYS = "trap '' TERM; echo ready; while :; do sleep 1; done"


@pytest.fixture
def silent(tmp_path: Path) -> Generator[str]:
    """The path of a socket that accepts connections and never answers."""
    path = str(tmp_path / "silent")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        yield path


@pytest.fixture(autouse=True)
def remains(monkeypatch: pytest.MonkeyPatch) -> RemainsRecord:
    record = RemainsRecord()
    monkeypatch.setattr(workers, "REMAINS", record)
    return record


@pytest.fixture(params=["program", "podman"])
def cleanup(request: pytest.FixtureRequest, silent: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """All workers get a clean-up command that waits for the silent socket."""
    command = [sys.executable, "-c", WAITS, silent]
    if request.param == "podman":
        if (podman := shutil.which("podman")) is None:
            pytest.skip("podman is not installed")
        command = [podman, "--url", f"unix://{silent}", "rm", "--force", "x"]

    def render(*arguments: Any, **more: Any) -> Any:
        rendered = worker_spec.render(*arguments, **more)
        return {
            key: spec._replace(cleanup=command, cleanup_s=0.2) for key, spec in rendered.items()
        }

    monkeypatch.setattr(local_engine, "render", render)
    return " ".join(command)


@on_a_box
async def test_a_clean_up_that_hangs_keeps_no_stopped_job(
    box: Box, cleanup: str, remains: RemainsRecord
) -> None:
    await box.run_until_output("job", "ready", Program(("sh", "-c", STAYS)))
    await box.stop("job", grace_s=0.0)
    assert await box.end_of("job") == 137
    assert box.ending("job").remains == f"'{cleanup}' did not end within 0.2 s"
    assert not box.processes("job")
    [warning] = remains.warnings()
    assert "the container of worker 0 of job job, attempt 1" in warning


@on_a_box
async def test_the_clean_up_of_a_dead_supervisor_hangs_no_thread(box: Box, cleanup: str) -> None:
    await box.run_until_output("job", "ready", Program(("sh", "-c", STAYS)))
    os.kill(box.supervisor_pid("job"), signal.SIGKILL)
    assert await box.end_of("job") == -1
    assert cleanup in box.ending("job").remains
    assert not box.processes("job")


@on_a_box
async def test_a_supervisor_that_hangs_is_killed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker is ended by the daemon before its GPU is free."""
    monkeypatch.setattr(workers, "STUCK_S", 0.0)
    await box.run_until_output("job", "ready", Program(("sh", "-c", STAYS)))
    os.kill(box.supervisor_pid("job"), signal.SIGSTOP)
    await box.stop("job", grace_s=0.0)
    assert await box.end_of("job") == -1
    assert not box.processes("job")


@on_a_box
async def test_a_user_does_not_choose_the_service_of_a_container(
    box: Box, podman: str, silent: str
) -> None:
    del podman
    env = {"CONTAINER_HOST": f"unix://{silent}", "DOCKER_HOST": f"unix://{silent}", "MINE": "x"}
    program = Program(("/bin/sh", "-c", "echo $MINE"), image=IMAGE, mounts=HOST_PROGRAMS, env=env)
    assert (await box.run("job", program)).code == 0
    assert await box.output("job") == b"x\n"


def test_a_connection_into_a_container_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_network, "CHILD", "import time; time.sleep(10000)")
    monkeypatch.setattr(container_network, "START_S", 0.1)
    with pytest.raises(TimeoutError):
        connect_in(os.getpid(), 1, timeout_s=0.0)
