"""From an order of the kernel to what each keeper is told. Pure: nothing is looked up here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.commands import ChangeMembership, StartWorkers
from rota.core.model import Allocation, Slot
from rota.engines.base import Program
from rota.engines.local.containers import Tool, Wrapped, wrap
from rota.engines.local.hierarchies import NONE, Hierarchies
from rota.engines.local.order import Fence, Order
from rota.engines.local.procs import MARKER

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all workers of this machine."""

    visible_names: Mapping[int, str] = field(default_factory=dict[int, str])
    """GPU index -> what CUDA_VISIBLE_DEVICES calls it: its UUID, or its index if it is virtual."""
    has_mps: bool = False
    container_tool: Tool | None = None
    hierarchies: Hierarchies = NONE


@dataclass(frozen=True, slots=True)
class Draw:
    """What is drawn by lot for an attempt: a free port, and a word that nobody can guess."""

    port: int
    nonce: str


def render(
    command: StartWorkers | ChangeMembership, program: Program, *, site: Site, draw: Draw
) -> dict[Fence, Order]:
    """One order for each slot; its place is the worker's rank."""
    first = range(len(command.allocation))
    numbers = command.workers if isinstance(command, ChangeMembership) else first
    rendered: dict[Fence, Order] = {}
    for rank, (worker, slot) in enumerate(zip(numbers, command.allocation, strict=True)):
        fence = Fence(command.job_id, command.attempt, worker)
        env = _environment(command, fence, rank=rank, draw=draw)
        rendered[fence] = _order(fence, program, slot=slot, site=site, env=env)
    return rendered


def _order(
    fence: Fence, program: Program, *, slot: Slot, site: Site, env: Mapping[str, str]
) -> Order:
    account, limits = program.account, program.limits
    own = dict(program.env) | dict(env) | _devices(slot, site)
    wrapped = _wrapped(program, slot, site=site, env=own)
    wanted = {"cpu": limits.cpus, "memory": limits.memory_bytes, "pids": limits.pids}
    return Order(
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
        log_name=fence.log_name,
        log_file_bytes=program.log.file_bytes,
        log_files=program.log.files,
        cpus=limits.cpus,
        memory_bytes=limits.memory_bytes,
        pids_max=limits.pids,
        inside=wrapped.inside,
        cgroups=site.hierarchies.folders(
            fence.flat_name, wanted=frozenset(key for key, limit in wanted.items() if limit)
        ),
    )


def _wrapped(program: Program, slot: Slot, *, site: Site, env: Mapping[str, str]) -> Wrapped:
    if not program.image:
        return Wrapped(list(program.argv), [])
    names = [site.visible_names.get(index, "") for index in slot.gpus]
    gpus = [name for name in names if name.startswith(("GPU-", "MIG-"))]
    return wrap(site.container_tool, program, env=env, gpus=gpus)


def _base(program: Program) -> dict[str, str]:
    """What a login would set; nothing of the daemon's own environment."""
    account = program.account
    names = {"USER": account.name, "LOGNAME": account.name} if account.name else {}
    return {"PATH": PATH, "HOME": account.home, "SHELL": account.shell, "LANG": "C.UTF-8"} | names


def _environment(
    command: StartWorkers | ChangeMembership, fence: Fence, *, rank: int, draw: Draw
) -> dict[str, str]:
    restarted = {"ROTA_RESTARTED": "1"} if fence.attempt > 1 else {}
    return (
        restarted
        | _local_rank(command.allocation, rank)
        | {
            "ROTA_JOB": fence.job_id,
            "ROTA_ATTEMPT": str(fence.attempt),
            "ROTA_GENERATION": str(command.generation),
            MARKER: f"{fence.job_id}/{fence.attempt}/{fence.worker}/{draw.nonce}",
            "RANK": str(rank),
            "WORLD_SIZE": str(len(command.allocation)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(draw.port),
        }
    )


def _local_rank(allocation: Allocation, rank: int) -> dict[str, str]:
    """Not for a worker that is alone with several GPUs: a framework that finds these takes itself
    for one of several processes, and waits for others instead of starting them."""
    if len(allocation) == 1 and len(allocation[0].gpus) > 1:
        return {}
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(len(allocation))}


def _devices(slot: Slot, site: Site) -> dict[str, str]:
    """A worker sees its own GPUs only; without any, none."""
    names = ",".join(site.visible_names.get(index, str(index)) for index in slot.gpus)
    devices = {"CUDA_VISIBLE_DEVICES": names}
    if slot.share_bytes:
        devices["ROTA_GPU_MEMORY_BYTES"] = str(slot.share_bytes)
        if site.has_mps:
            # The worker sees one GPU, which it calls 0 whatever its index on the machine is.
            devices["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={slot.share_bytes // 1024**2}M"
    return devices
