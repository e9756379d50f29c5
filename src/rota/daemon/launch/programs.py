"""What a job's workers run, out of what was submitted."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.core.model import JobSpec
from rota.daemon.admission import Admitted
from rota.daemon.fields import parse_mount, parse_ports
from rota.engines.base import Account, Limits, Mount, Program
from rota.wire.jobs import JobRequest
from rota.wire.json import dump_brief, load

DEFAULT_UMASK = 0o022
NO_GROUP = 65534
MOST_PROCESSES = 4096
"""Of one worker: enough for any loader, too few to drown the box."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What the store keeps of a submit, as JSON."""

    request: JobRequest
    array_index: int | None = None
    fingerprint: str = ""
    """Of the submit that a key came with, to tell whether another with the same key is the same."""
    pod: str = ""
    """NAME/UID of the pod that somebody made themselves, and that the job stands for."""


def pack(saved: Saved) -> str:
    return dump_brief(saved)


def pack_all(admitted: Sequence[Admitted], fingerprint: str, *, pod: str = "") -> Iterator[str]:
    """All jobs of a submit. Its fingerprint is kept with the first."""
    first, *others = admitted
    yield pack(Saved(first.request, first.array_index, fingerprint, pod))
    known, text = None, ""
    for each in others:
        if each is not known:
            known, text = each, pack(Saved(each.request, each.array_index))
        yield text


def unpack(text: str) -> Saved:
    return load(Saved, json.loads(text))


def program(
    saved: Saved, spec: JobSpec, *, account: Account, env: dict[str, str], is_contained: bool
) -> Program:
    """`env` is what the daemon adds for this attempt: where it is reached, and by which token."""
    request = saved.request
    index = saved.array_index
    mask = _mask(request) if is_contained else {}
    array = {} if index is None else {"ROTA_ARRAY_INDEX": str(index)}
    return Program(
        argv=tuple(request.command),
        env={**request.env, **array, **env, **mask, "ROTA_JOB_NAME": spec.name},
        # An image has a folder of its own to begin in; the account's home is seldom in it.
        workdir=request.workdir or ("" if is_contained else account.home),
        account=account,
        umask=DEFAULT_UMASK if request.umask is None else request.umask,
        grace_s=spec.grace_s,
        limits=Limits(spec.cpus, spec.memory_bytes, MOST_PROCESSES),
        image=request.image,
        pod=saved.pod,
        mounts=tuple(Mount(*parse_mount(each)) for each in request.mounts),
        ports=tuple(parse_ports(each)[1] for each in request.ports),
    )


def _mask(request: JobRequest) -> dict[str, str]:
    """A container begins with its image's own, and nobody outside can set it."""
    if request.umask is None:
        return {}
    return {"ROTA_UMASK": f"{request.umask:04o}"}


def account_of(user: str, uid: int | None) -> Account:
    """As whom to run: `uid` with all that the system knows of it; None: as ourselves."""
    try:
        known = pwd.getpwuid(os.getuid() if uid is None else uid)
    except KeyError:
        # Not the group of the same number: that may well be one with rights, such as docker's.
        return Account(user, uid=uid, gid=None if uid is None else NO_GROUP)
    if uid is None:
        return Account(user, known.pw_dir, known.pw_shell)
    groups = tuple(os.getgrouplist(known.pw_name, known.pw_gid))
    return Account(known.pw_name, known.pw_dir, known.pw_shell, uid, known.pw_gid, groups)
