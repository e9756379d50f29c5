"""Render a start command into one `WorkerSpec` per worker.

`render` is pure: the state of the machine (GPU names, free port, nonce) comes in as arguments.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.commands import ChangeMembership, StartWorkers
from rota.engines.interface import Mount, Program
from rota.engines.local.cgroup_discovery import NONE, Hierarchies
from rota.engines.local.containers import ContainerCommand, Devices, Tool, wrap
from rota.engines.local.gpus import MPS_PIPE_DIR
from rota.engines.local.supervisor.proc import MARKER
from rota.engines.local.supervisor.records import WorkerKey, WorkerSpec
from rota.engines.worker_environment import size_variables
from rota.errors import UserError

OTHER_PORTS = range(10_000, 32_000)
"""Below the ports that the kernel gives out by default."""
PORT_TRIES = 100
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """Facts about this machine that are the same for all workers."""

    visible_names: Mapping[int, str] = field(default_factory=dict[int, str])
    """GPU index -> name in CUDA_VISIBLE_DEVICES: the UUID, or the index of a virtual GPU."""
    mps_pipe_dir: str = ""
    """Empty: CUDA's multi-process service (MPS) does not run."""
    container_tool: Tool | None = None
    hierarchies: Hierarchies = NONE


@dataclass(frozen=True, slots=True)
class AttemptParams:
    """Random values of an attempt: a free port for rendezvous, and a secret nonce."""

    port: int
    nonce: str


def render(
    command: StartWorkers | ChangeMembership,
    program: Program,
    *,
    host: HostCapabilities,
    params: AttemptParams,
) -> dict[WorkerKey, WorkerSpec]:
    """Return one spec per slot of the allocation. The position of the slot is the rank."""
    if program.image and len(command.allocation) > 1 and not program.host_network:
        what = "several workers in containers reach each other only on the machine's network"
        raise UserError(what, "submit the job with --host-network")
    first = range(len(command.allocation))
    numbers = command.workers if isinstance(command, ChangeMembership) else first
    rendered: dict[WorkerKey, WorkerSpec] = {}
    for rank, (worker, slot) in enumerate(zip(numbers, command.allocation, strict=True)):
        key = WorkerKey(command.job_id, command.attempt, worker)
        env = _environment(command, key, rank=rank, params=params)
        rendered[key] = _worker_spec(key, program, slot=slot, host=host, env=env)
    return rendered


def _worker_spec(
    key: WorkerKey,
    program: Program,
    *,
    slot: Slot,
    host: HostCapabilities,
    env: Mapping[str, str],
) -> WorkerSpec:
    account, limits = program.account, program.limits
    own = dict(program.env) | dict(env) | _devices(slot, host)
    wrapped = _wrapped(program, slot, host=host, env=own)
    wanted = {"cpu": limits.cpus, "memory": limits.memory_bytes, "pids": limits.pids}
    return WorkerSpec(
        argv=wrapped.argv,
        env=_base(program) | own,
        workdir="/" if program.image else program.workdir,
        marker=env[MARKER],
        uid=account.uid,
        gid=account.gid,
        groups=list(account.groups),
        cleanup=wrapped.cleanup,
        umask=program.umask,
        grace_s=program.grace_s,
        log_name=key.log_name,
        log_file_bytes=program.log.file_bytes,
        log_files=program.log.files,
        cpus=limits.cpus,
        memory_bytes=limits.memory_bytes,
        pids_max=limits.pids,
        inside=wrapped.inside,
        cgroups=host.hierarchies.folders(
            key.flat_name, wanted=frozenset(key for key, limit in wanted.items() if limit)
        ),
    )


def _wrapped(
    program: Program, slot: Slot, *, host: HostCapabilities, env: Mapping[str, str]
) -> ContainerCommand:
    if not program.image:
        return ContainerCommand(list(program.argv), [])
    names = [host.visible_names.get(index, "") for index in slot.gpus]
    gpus = [name for name in names if name.startswith(("GPU-", "MIG-"))]
    pipes = host.mps_pipe_dir if slot.share_bytes else ""
    if pipes:
        mounts = (*program.mounts, Mount(pipes, pipes, is_writable=True))
        program = replace(program, mounts=mounts)
    return wrap(host.container_tool, program, env=env, devices=Devices(gpus, uses_mps=bool(pipes)))


def _base(program: Program) -> dict[str, str]:
    """The variables of a login shell; nothing from the daemon's environment."""
    account = program.account
    names = {"USER": account.name, "LOGNAME": account.name} if account.name else {}
    return {"PATH": PATH, "HOME": account.home, "SHELL": account.shell, "LANG": "C.UTF-8"} | names


def _environment(
    command: StartWorkers | ChangeMembership, key: WorkerKey, *, rank: int, params: AttemptParams
) -> dict[str, str]:
    restarted = {"ROTA_RESTARTED": "1"} if key.attempt > 1 else {}
    return (
        restarted
        | size_variables(command.allocation, rank)
        | _local_rank(command.allocation, rank)
        | {
            "ROTA_JOB": key.job_id,
            "ROTA_ATTEMPT": str(key.attempt),
            "ROTA_GENERATION": str(command.generation),
            MARKER: f"{key.job_id}/{key.attempt}/{key.worker}/{params.nonce}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(params.port),
        }
    )


def _local_rank(allocation: Allocation, rank: int) -> dict[str, str]:
    """A single worker gets no local rank, for the same reason that it gets no `WORLD_SIZE`."""
    if len(allocation) == 1:
        return {}
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(len(allocation))}


def _devices(slot: Slot, host: HostCapabilities) -> dict[str, str]:
    """Limit the worker to its own GPUs; a worker without GPUs sees none."""
    names = ",".join(host.visible_names.get(index, str(index)) for index in slot.gpus)
    devices = {"CUDA_VISIBLE_DEVICES": names}
    if slot.share_bytes:
        devices["ROTA_GPU_MEMORY_BYTES"] = str(slot.share_bytes)
        if host.mps_pipe_dir:
            # A client that looks for MPS in another directory runs without MPS and its limits.
            devices[MPS_PIPE_DIR] = host.mps_pipe_dir
            # The worker sees only its own GPUs, numbered from 0.
            limits = (f"{i}={slot.share_bytes // 1024**2}M" for i in range(len(slot.gpus)))
            devices["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    return devices


def pick_free_port() -> int:
    """Return a free port. The kernel returns a different port each time, so that two attempts that
    start together get different ports.

    If a user occupies all ports that the kernel gives out, return one below these. A port that
    another program takes later has the same result: the workers cannot meet there."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                raise
            return _port_of_others(probe)
        return int(probe.getsockname()[1])


def _port_of_others(probe: socket.socket) -> int:
    """A port that the kernel does not give out: free, if one of a few tries finds a free one."""
    port = 0
    for _ in range(PORT_TRIES):
        port = OTHER_PORTS[int.from_bytes(os.urandom(4)) % len(OTHER_PORTS)]
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        break
    return port


def master_port_of(spec: WorkerSpec) -> int:
    """Return the port that the attempt got before a restart of the daemon."""
    return int(spec.env["MASTER_PORT"])
