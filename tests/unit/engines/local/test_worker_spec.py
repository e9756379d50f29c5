"""Rendering of a start command into one spec per worker."""

import errno
import os
import socket
from typing import Any

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.commands import StartWorkers
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.engines.interface import Program, UnixAccount, WorkerLimits
from rota.engines.local import worker_spec
from rota.engines.local.cgroup_discovery import Hierarchies
from rota.engines.local.containers import Tool
from rota.engines.local.supervisor.records import WorkerKey, WorkerSpec
from rota.engines.local.worker_spec import AttemptParams, HostCapabilities, render

NODE = NodeId("n")
DRAW = AttemptParams(port=29500, nonce="abc")


def specs(program: Program, *slots: Slot, host: HostCapabilities | None = None) -> list[WorkerSpec]:
    command = StartWorkers(JobId("job"), 1, 0, slots)
    rendered = render(command, program, host=host or HostCapabilities(), params=DRAW)
    assert list(rendered) == [WorkerKey("job", 1, worker) for worker in range(len(slots))]
    return list(rendered.values())


def test_visible_devices_are_uuids() -> None:
    host = HostCapabilities(visible_names={0: "GPU-a", 1: "GPU-b"})
    one, two = specs(Program(("p",)), Slot(NODE, (1,)), Slot(NODE, (0, 1)), host=host)
    assert one.env["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    assert two.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_a_worker_without_gpus_sees_none() -> None:
    [spec] = specs(Program(("p",)), Slot(NODE))
    assert spec.env["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("gpus", [(0,), (0, 1)])
def test_a_single_worker_gets_no_world_size(gpus: tuple[int, ...]) -> None:
    """Lightning, for example, waits for other processes if it finds a local rank."""
    [alone] = specs(Program(("p",)), Slot(NODE, gpus))
    assert not {"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"} & alone.env.keys()
    assert (alone.env["RANK"], alone.env["ROTA_PROCESSES"]) == ("0", "1")
    assert alone.env["NUM_GPUS"] == alone.env["ROTA_GPUS"] == str(len(gpus))


def test_several_workers_know_the_size_of_their_job() -> None:
    slots = [Slot(NODE, (0, 1)), Slot(NODE, (2, 3))]
    last = specs(Program(("p",)), *slots)[-1].env
    assert (last["RANK"], last["LOCAL_RANK"], last["WORLD_SIZE"]) == ("1", "1", "2")
    assert (last["NUM_GPUS"], last["ROTA_GPUS"], last["ROTA_NODES"]) == ("2", "4", "1")
    assert (last["ROTA_PROCESSES"], last["CUDA_VISIBLE_DEVICES"]) == ("2", "2,3")


def test_mps_limits_the_memory_of_a_share() -> None:
    share = Slot(NODE, (1,), share_bytes=6 * GIB, fraction=0.5)
    [plain] = specs(Program(("p",)), share)
    assert plain.env["ROTA_GPU_MEMORY_BYTES"] == str(6 * GIB)
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in plain.env
    assert "CUDA_MPS_PIPE_DIRECTORY" not in plain.env
    host = HostCapabilities(mps_pipe_dir="/run/mps")
    program = Program(("p",), env={"CUDA_MPS_PIPE_DIRECTORY": "/elsewhere"})
    [held] = specs(program, share, host=host)
    assert held.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=6144M"
    assert held.env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    [whole] = specs(Program(("p",)), Slot(NODE, (1,)), host=host)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in whole.env


def test_a_share_of_two_gpus_limits_each_of_them() -> None:
    host = HostCapabilities(mps_pipe_dir="/run/mps")
    [held] = specs(Program(("p",)), Slot(NODE, (1, 3), 6 * GIB, 0.5), host=host)
    assert held.env["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert held.env["ROTA_GPU_MEMORY_BYTES"] == str(6 * GIB)
    assert held.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=6144M,1=6144M"


def test_container_with_a_share_reaches_mps() -> None:
    host = HostCapabilities(mps_pipe_dir="/run/mps", container_tool=Tool("podman", "/p"))
    share = Slot(NODE, (1,), share_bytes=6 * GIB, fraction=0.5)
    [held] = specs(Program(("p",), image="torch"), share, host=host)
    reach = {"--volume=/run/mps:/run/mps:rw", "--ipc=host", "--env=CUDA_MPS_PIPE_DIRECTORY"}
    assert reach <= set(held.argv)
    [whole] = specs(Program(("p",), image="torch"), Slot(NODE, (1,)), host=host)
    assert not reach & set(whole.argv)


def test_only_needed_cgroups_are_created() -> None:
    groups = Hierarchies({"kill": "/k"}, {"cpu": "/c", "memory": "/m"})
    host = HostCapabilities(hierarchies=groups)
    [free] = specs(Program(("p",)), Slot(NODE), host=host)
    assert free.cgroups == {"kill": "/k/job~1~0"}
    [bounded] = specs(Program(("p",), limits=WorkerLimits(cpus=2)), Slot(NODE), host=host)
    assert bounded.cgroups == {"kill": "/k/job~1~0", "cpu": "/c/job~1~0"}


def test_engine_variables_override_those_of_the_job() -> None:
    env = {"RANK": "9", "CUDA_VISIBLE_DEVICES": "0,1,2", "HOME": "/elsewhere"}
    account = UnixAccount("ada", "/home/ada", uid=1000, gid=1000, groups=(27,))
    [spec] = specs(Program(("p",), env, account=account), Slot(NODE, (3,)))
    assert (spec.env["RANK"], spec.env["CUDA_VISIBLE_DEVICES"]) == ("0", "3")
    assert spec.env["HOME"] == "/elsewhere"
    assert (spec.uid, spec.gid, spec.groups) == (1000, 1000, [27])


@pytest.mark.parametrize("is_full", [False, True])
def test_a_user_who_occupies_all_loopback_ports_stops_no_start(
    monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    class OccupiedSocket(socket.socket):
        def bind(self, address: Any) -> None:
            if is_full or address[1] == 0:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            super().bind(address)

    monkeypatch.setattr(worker_spec.socket, "socket", OccupiedSocket)
    assert worker_spec.pick_free_port() in worker_spec.OTHER_PORTS
