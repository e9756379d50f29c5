"""Encodes a request for the store, and builds the engine's `Program` from it."""

from __future__ import annotations

import json
import os
import pwd
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.job import JobSpec
from rota.daemon.jobs.admission import Admitted
from rota.daemon.jobs.validation import parse_mount, parse_ports
from rota.engines.interface import Mount, Program, UnixAccount, WorkerLimits
from rota.store.records import Submission
from rota.wire.codec import dump_brief, load
from rota.wire.jobs import JobRequest

DEFAULT_UMASK = 0o022
NO_GROUP = 65534
MAX_PROCESSES = 4096
"""Limit of one worker: enough for data loaders, too few to exhaust the machine."""


@dataclass(frozen=True, slots=True)
class SubmittedProgram:
    """A request as the store keeps it, as JSON."""

    request: JobRequest
    array_index: int | None = None
    fingerprint: str = ""
    """Hash of the submit with an idempotency key, to recognise a repeated submit."""
    pod: str = ""
    """NAME/UID of an external pod that the job stands for."""


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A program as the store keeps it. `common` is the request if other jobs have the same one;
    `own` has the rest, or everything."""

    own: str
    common: str = ""


def pack(saved: SubmittedProgram) -> str:
    """JSON without defaults. The network of a container is always in it: see `unpack`."""
    text = dump_brief(saved)
    if not saved.request.image:
        return text
    stored = json.loads(text)
    stored["request"]["host_network"] = saved.request.host_network
    return json.dumps(stored, separators=(",", ":"))


def pack_all(
    admitted: Sequence[Admitted], fingerprint: str, *, pod: str = ""
) -> list[PackedProgram]:
    """All jobs of a submit. The first job stores the fingerprint. Jobs of one array, and equal jobs
    of a batch, share their request."""
    n_jobs = Counter(id(each.request) for each in admitted)
    packed: list[PackedProgram] = []
    known, common = None, ""
    for each in admitted:
        if n_jobs[id(each.request)] == 1:
            saved = SubmittedProgram(each.request, each.array_index, fingerprint, pod)
            packed.append(PackedProgram(pack(saved)))
        else:
            if each.request is not known:
                known, common = each.request, _pack_request(each.request)
            own = _pack_own(each.array_index, fingerprint=fingerprint, pod=pod)
            packed.append(PackedProgram(own, common))
        fingerprint = pod = ""
    return packed


def _pack_request(request: JobRequest) -> str:
    stored = json.loads(pack(SubmittedProgram(request)))
    return json.dumps(stored["request"], separators=(",", ":"))


def _pack_own(array_index: int | None, *, fingerprint: str, pod: str) -> str:
    own = {"array_index": array_index, "fingerprint": fingerprint, "pod": pod}
    given = {name: value for name, value in own.items() if value not in (None, "")}
    return json.dumps(given, separators=(",", ":"))


def unpack(submission: Submission) -> SubmittedProgram:
    """A container job that was stored before the field `host_network` existed was accepted with the
    network of the machine, and keeps it."""
    stored = json.loads(submission.program)
    if submission.common:
        stored["request"] = json.loads(submission.common)
    if stored["request"].get("image"):
        stored["request"].setdefault("host_network", True)
    return load(SubmittedProgram, stored)


def program(
    saved: SubmittedProgram,
    spec: JobSpec,
    *,
    account: UnixAccount,
    env: dict[str, str],
    is_contained: bool,
) -> Program:
    """`env` are the variables that the daemon adds for this attempt."""
    request = saved.request
    index = saved.array_index
    mask = _mask(request) if is_contained else {}
    array = {} if index is None else {"ROTA_ARRAY_INDEX": str(index)}
    return Program(
        argv=tuple(request.command),
        env={**request.env, **array, **env, **mask, "ROTA_JOB_NAME": spec.name},
        # An image has its own working directory, and seldom the home of the account.
        workdir=request.workdir or ("" if is_contained else account.home),
        account=account,
        umask=DEFAULT_UMASK if request.umask is None else request.umask,
        grace_s=spec.grace_s,
        limits=WorkerLimits(spec.cpus, spec.memory_bytes, MAX_PROCESSES),
        image=request.image,
        pod=saved.pod,
        mounts=tuple(Mount(*parse_mount(each)) for each in request.mounts),
        ports=tuple(parse_ports(each)[1] for each in request.ports),
        host_network=request.host_network,
    )


def _mask(request: JobRequest) -> dict[str, str]:
    """Only the program inside a container can set its umask."""
    if request.umask is None:
        return {}
    return {"ROTA_UMASK": f"{request.umask:04o}"}


def account_of(user: str, uid: int | None) -> UnixAccount:
    """The account of a `uid`, as the system knows it. None: the daemon's own account."""
    try:
        known = pwd.getpwuid(os.getuid() if uid is None else uid)
    except KeyError:
        # The group of the same number may have rights, such as docker's.
        return UnixAccount(user, uid=uid, gid=None if uid is None else NO_GROUP)
    if uid is None:
        return UnixAccount(user, known.pw_dir, known.pw_shell)
    groups = tuple(os.getgrouplist(known.pw_name, known.pw_gid))
    return UnixAccount(known.pw_name, known.pw_dir, known.pw_shell, uid, known.pw_gid, groups)
