"""Turns a request into job specs, or raises an error that names the invalid field.

Pure: the user, the nodes and the defaults are arguments.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, TypeVar

from rota.core.explain.feasibility import FeasibilityChecker
from rota.core.model.events import JobEdited
from rota.core.model.job import Estimate, GpuShare, Job, JobId, JobSpec, Mode, Processes
from rota.core.model.units import (
    GPUS_EXAMPLES,
    MAX_SECONDS,
    GpuCount,
    format_bytes,
    format_seconds,
    parse_array,
    parse_bytes,
    parse_gpus,
    parse_seconds,
)
from rota.daemon.errors import RefusedError
from rota.daemon.jobs import validation
from rota.engines.interface import LogLimits
from rota.errors import UserError, shown
from rota.wire.job_changes import JobEdit
from rota.wire.job_request import WHILE_QUEUED, edit_fields
from rota.wire.jobs import JobRequest
from rota_trainer.reporting.limits import MOST_EPOCHS

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
GRACE_S = 30.0
LAUNCHER_MODULES = (
    ["torch.distributed.run"],
    ["torch.distributed.launch"],
    ["accelerate.commands.launch"],
)
EPOCHS = (1e-9, MOST_EPOCHS)
SECONDS = (1e-3, MAX_SECONDS)
HOURS = (1e-6, MAX_SECONDS / 3600)
EDIT_FIELDS = edit_fields()


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a site or a project adds to every job. `{user}` in a mount is the submitter.

    `are_contained`: the engine has an image for jobs without one. That image is not part of the
    request, so that the job can move to a daemon that needs no image.
    """

    are_contained: bool = False
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[str, ...] = ()
    grace_s: float = GRACE_S
    log: LogLimits = field(default_factory=LogLimits)

    def mounts_of(self, user: str) -> list[str]:
        return [each.replace("{user}", user) for each in self.mounts]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The jobs that a job waits for: to succeed, to end, and to fail."""

    after: tuple[JobId, ...] = ()
    after_any: tuple[JobId, ...] = ()
    after_failed: tuple[JobId, ...] = ()


NO_DEPENDENCIES = Dependencies()


@dataclass(frozen=True, slots=True)
class Admitted:
    """One job. `request` includes the defaults. `is_first`: the first job of its array."""

    spec: JobSpec
    request: JobRequest
    array_index: int | None = None
    is_first: bool = False


def admit(
    request: JobRequest,
    *,
    user: str,
    defaults: Defaults,
    feasibility: FeasibilityChecker,
    after: Dependencies = NO_DEPENDENCIES,
) -> list[Admitted]:
    """The jobs of a request that passed `check_shape`: one job, or one per index of its array."""
    name = request.category or request.name
    request = with_defaults(request, user=user, defaults=defaults)
    validation.check(request, is_contained=defaults.are_contained or bool(request.image))
    spec = _spec(request, user=user, after=after, grace_s=defaults.grace_s)
    spec = replace(spec, category=category_of(request, spec, name=name))
    _check_network(request, spec, is_cluster=defaults.are_contained)
    _require_feasible(spec, feasibility, is_per_gpu=bool(request.gpus_per_worker))
    if not request.array:
        return [Admitted(spec, request)]
    array = _parsed("array", request.array, parse=parse_array)
    spec = replace(spec, array_limit=array.limit)
    return [
        Admitted(replace(spec, name=f"{spec.name}[{index}]"), request, index, index == first)
        for first in array.indices[:1]
        for index in array.indices
    ]


def _require_feasible(spec: JobSpec, feasibility: FeasibilityChecker, *, is_per_gpu: bool) -> None:
    """`is_per_gpu`: the request says how many GPUs each process has."""
    found = feasibility.of(spec)
    if found is not None:
        is_implied = found.field == "gpus_per_worker" and not is_per_gpu
        blamed = "gpus" if is_implied else found.field
        raise RefusedError(blamed, f"it can never run: {found.message}", found.hint)


def edit_event(
    job: Job, edit: JobEdit, *, actor: str, feasibility: FeasibilityChecker
) -> JobEdited:
    """The event of an edit. Its values pass the same checks as those of a submit. Raises if the
    job's state does not allow the edit of a field."""
    given: dict[str, Any] = {
        name: value for name in EDIT_FIELDS if (value := getattr(edit, name)) is not None
    }
    if not given:
        raise UserError("the edit names no field", f"use {', '.join(EDIT_FIELDS)}")
    for name in given:
        if job.is_active and EDIT_FIELDS[name].info.editable == WHILE_QUEUED:
            what = f"job {job.id} is {job.state}, and this changes only while a job is queued"
            raise RefusedError(name, what, "'rota hold' stops the job and keeps it in the queue")
    request = replace(JobRequest(["-"], name="job", gpus="1"), **given)
    validation.check_shape(request)
    validation.check(request, is_contained=False)
    spec = _spec(request, user=job.spec.user, after=NO_DEPENDENCIES, grace_s=GRACE_S)
    values: dict[str, Any] = {_spec_name(name): getattr(spec, _spec_name(name)) for name in given}
    if "name" in given:  # A job of an array keeps its index.
        values["name"] = "".join((spec.name, *job.spec.name.partition("[")[1:]))
    needs_other_nodes = any(EDIT_FIELDS[name].info.editable == WHILE_QUEUED for name in given)
    if needs_other_nodes and not job.is_active:
        _require_feasible(replace(job.spec, **values), feasibility, is_per_gpu=True)
    return JobEdited(job.id, actor, **values)


def with_edits(request: JobRequest, spec: JobSpec) -> JobRequest:
    """The request of a job as edits have left it, for people and for copies of the job."""
    try:
        fields: dict[str, Any] = {name: getattr(request, name) for name in EDIT_FIELDS}
        only = JobRequest(["-"], gpus="1", **fields)
        asked = _spec(only, user="", after=NO_DEPENDENCIES, grace_s=GRACE_S)
    except RefusedError:
        return request  # An earlier version accepted values that are not clear enough today.
    name = spec.name.partition("[")[0]
    now = replace(spec, name=name)
    texts: dict[str, Any] = {
        "name": name,
        "gpu_types": list(spec.gpu_types),
        "cpus": spec.cpus,
        "memory": format_bytes(spec.memory_bytes) if spec.memory_bytes else "",
        "priority": spec.priority,
        "time_limit": "" if math.isinf(spec.time_limit_s) else format_seconds(spec.time_limit_s),
        "retries": spec.retries,
        "retry_on": sorted(spec.retry_on),
    }
    changed = {
        field: text
        for field, text in texts.items()
        if getattr(asked, _spec_name(field)) != getattr(now, _spec_name(field))
    }
    return replace(request, **changed) if changed else request


def _spec_name(field: str) -> str:
    """The name of a field of a request in a `JobSpec`."""
    return {"time_limit": "time_limit_s", "memory": "memory_bytes"}.get(field, field)


def _check_network(request: JobRequest, spec: JobSpec, *, is_cluster: bool) -> None:
    """A container has its own network, in which the other workers of its job do not find it."""
    if is_cluster and request.host_network:
        what = "pods have a network of their own, in which workers reach each other"
        raise RefusedError("host_network", what, "submit the job without it")
    if request.image and _has_several_workers(spec) and not (is_cluster or request.host_network):
        what = "several workers in containers reach each other only on the machine's network"
        raise RefusedError("host_network", what, "submit the job with --host-network")


def _has_several_workers(spec: JobSpec) -> bool:
    """Whether the job may have several workers on a machine."""
    return spec.max_workers > 1 and not spec.merges_units


def adapted_to_site(request: JobRequest, *, user: str, defaults: Defaults) -> JobRequest:
    """The request of a job that moved here, with the network that it needs here: a machine and a
    cluster accept different networks for the same job."""
    if defaults.are_contained:
        return replace(request, host_network=False)
    filled = with_defaults(request, user=user, defaults=defaults)
    spec = _spec(filled, user=user, after=NO_DEPENDENCIES, grace_s=defaults.grace_s)
    is_needed = bool(filled.image) and _has_several_workers(spec)
    return replace(request, host_network=request.host_network or is_needed)


def with_defaults(request: JobRequest, *, user: str, defaults: Defaults) -> JobRequest:
    image = request.image or defaults.image
    added: dict[str, Any] = {}
    if not request.name:
        added["name"] = _name_of(request.command)
    if not request.gpus:
        added["gpus"] = "1"
    if image != request.image:
        added["image"] = image
    if defaults.env:
        added["env"] = {**defaults.env, **request.env}
    if defaults.mounts and (image or defaults.are_contained):
        # The request of a TrainingJob may contain the default mounts already.
        ours = [each for each in defaults.mounts_of(user) if each not in request.mounts]
        added["mounts"] = [*ours, *request.mounts]
    return replace(request, **added) if added else request


def without_defaults(request: JobRequest, *, user: str, defaults: Defaults) -> JobRequest:
    """The request for another submit, here or elsewhere: without the variables and mounts of this
    site. The image stays, also a default image. A cluster accepts no `host_network`, so there it
    only says that the request was stored before the field existed."""
    ours = defaults.mounts_of(user)
    return replace(
        request,
        env={name: value for name, value in request.env.items() if defaults.env.get(name) != value},
        mounts=[each for each in request.mounts if each not in ours],
        host_network=request.host_network and not defaults.are_contained,
    )


def _name_of(command: Sequence[str]) -> str:
    """The name of the script, else of the program."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    word = scripts[0] if scripts else command[0] if command else ""
    name = PurePosixPath(word).name if "/" in word else word
    return _NOT_IN_NAMES.sub("-", name).lstrip("._-")[:40] or "job"


def _spec(request: JobRequest, *, user: str, after: Dependencies, grace_s: float) -> JobSpec:
    count = _gpus(request)
    mode = _chosen("mode", request.mode, kind=Mode)
    processes = _processes(request, mode)
    per_unit = _gpus_per_unit(request, count, processes=processes)
    units = [max(1, each // per_unit) for each in (count.least, count.most, count.requested)]
    uses_whole_gpus = count.most > 0 and count.share is None
    return JobSpec(
        name=request.name,
        user=user,
        project=request.project,
        priority=request.priority,
        mode=mode,
        min_workers=units[0],
        max_workers=units[1],
        requested_workers=units[2],
        start_units=units[2] if count.is_start_given else 0,
        gpus=per_unit if uses_whole_gpus else 0,
        share=count.share,
        processes=processes if units[1] > 1 else Processes.PER_GPU,
        max_nodes=_max_nodes(request, processes) if units[1] > 1 else 0,
        gpu_types=tuple(request.gpu_types),
        node_labels=frozenset(request.node_labels.items()),
        cpus=_amount("cpus", request.cpus),
        memory_bytes=_parsed("memory", request.memory, parse=parse_bytes) if request.memory else 0,
        epochs=_within("epochs", request.epochs, bounds=EPOCHS)
        if request.epochs is not None
        else 1.0,
        estimate=_estimate(request, workers=units[2]),
        retries=request.retries,
        retry_on=frozenset(request.retry_on),
        time_limit_s=_time_limit(request.time_limit),
        grace_s=_parsed("grace", request.grace, parse=parse_seconds) if request.grace else grace_s,
        after=after.after,
        after_any=after.after_any,
        after_failed=after.after_failed,
    )


def _gpus(request: JobRequest) -> GpuCount:
    count = _parsed("gpus", request.gpus, parse=parse_gpus, hint=GPUS_EXAMPLES)
    if not request.gpu_memory:
        return count
    if count.share is not None or count.most == 0:
        raise RefusedError(
            "gpu_memory",
            f"it is the memory used on each GPU, and conflicts with --gpus {request.gpus}",
            "use only one of the two",
        )
    share = GpuShare(memory_bytes=_parsed("gpu_memory", request.gpu_memory, parse=parse_bytes))
    return replace(count, share=share)


def _processes(request: JobRequest, mode: Mode) -> Processes:
    if request.processes:
        return _chosen("processes", request.processes, kind=Processes)
    is_per_gpu = request.gpus_per_worker or mode.resizes_in_place
    return Processes.PER_GPU if is_per_gpu else Processes.PER_NODE


def _max_nodes(request: JobRequest, processes: Processes) -> int:
    """The program of a job with one process on each node must know of the other nodes. Without a
    launcher that does, the job uses one node."""
    if request.nodes or processes is Processes.PER_GPU:
        return request.nodes
    return 0 if _is_launched(request.command) else 1


def _is_launched(command: Sequence[str]) -> bool:
    """Whether the command is a launcher that connects the processes of several nodes."""
    programs = [PurePosixPath(word).name for word in command[:3]]
    if programs[:1] == ["torchrun"] or programs[:2] == ["accelerate", "launch"]:
        return True
    return programs[1:2] == ["-m"] and programs[2:] in LAUNCHER_MODULES


def _gpus_per_unit(request: JobRequest, count: GpuCount, *, processes: Processes) -> int:
    wanted = request.gpus_per_worker
    if not wanted:
        return 1
    if processes is Processes.PER_NODE:
        raise RefusedError(
            "gpus_per_worker",
            "with one process on each node, the process has all GPUs there",
            "leave it out, or use --processes per-gpu",
        )
    if count.share is not None or count.most == 0:
        if wanted > 1:
            raise RefusedError(
                "gpus_per_worker", "a share of a GPU is for one worker", "leave it out"
            )
        return 1
    for each in (count.least, count.most, count.requested):
        if each % wanted:
            raise RefusedError(
                "gpus_per_worker",
                f"{each} is not a multiple of {wanted}",
                "use a divisor of it",
            )
    return wanted


def _chosen(name: str, text: str, *, kind: type[E]) -> E:
    try:
        return kind(text)
    except ValueError:
        what = f"unknown {name} '{shown(text)}'"
        raise RefusedError(name, what, f"use {', '.join(kind)}") from None


def _estimate(request: JobRequest, *, workers: int) -> Estimate | None:
    if request.hours is None:
        return None
    return Estimate(_within("hours", request.hours, bounds=HOURS) * 3600, workers)


def _time_limit(text: str) -> float:
    if not text:
        return math.inf
    return _within("time_limit", _parsed("time_limit", text, parse=parse_seconds), bounds=SECONDS)


def _parsed(name: str, text: str, *, parse: Callable[[str], T], hint: str = "") -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise RefusedError(name, str(error), hint) from None


def _within(name: str, value: float, *, bounds: tuple[float, float]) -> float:
    """Values outside of the bounds would overflow in sums and quotients."""
    low, high = bounds
    if not low <= value <= high:
        is_small = value <= 0
        what = f"{value:g} is not above 0" if is_small else f"{value:g} is out of bounds"
        hint = "use a number above 0" if is_small else f"use {low:g} to {high:g}"
        raise RefusedError(name, what, f"{hint}, or leave it out if unknown")
    return value


def _amount(name: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise RefusedError(name, f"{value:g} is not a valid amount", "use 0 for no limit")
    return value


def category_of(request: JobRequest, spec: JobSpec, *, name: str) -> str:
    """The key under which speed measurements are shared: jobs of one user with the same `name`, or
    else the same code and arguments, and with equal workers."""
    share = spec.share
    worker = [spec.gpus, share.fraction if share else 0.0, share.memory_bytes if share else 0]
    code = [request.command, request.snapshot, request.image, request.workdir]
    what = ["name", name] if name else ["code", *code]
    return hashlib.sha256(json.dumps([spec.user, worker, what]).encode()).hexdigest()[:32]
