"""Where workers run, as far as a job has to be fitted out for it: on this machine, or on the nodes
of a cluster, which see of this machine only what is shared with them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from rota.core.model import JobId
from rota.core.notation import parse_gpus
from rota.daemon.checkpoints import JOB, USER, Checkpoints, Owner
from rota.daemon.fields import RefusedError, claim_of, parse_mount
from rota.daemon.identities import ANYBODY
from rota.daemon.people import Caller, ForbiddenError
from rota.daemon.programs import account_of
from rota.daemon.snapshots import Snapshots, shipper_of
from rota.engines.base import Account, Mount
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.jobs import JobRequest
from rota.wire.json import dump_brief

VOLUMES = ("pvc:", "nfs:")
CHECKPOINTS, SHIPPED = "/checkpoints", "/shipped"
"""Where a pod finds a volume that is for checkpoints, and what was shipped with its job."""
MOST_BYTES = 80_000
"""Of one request: an object's annotations take 256 KiB, and hold it with its quotes quoted."""
NOBODY_IN_PARTICULAR = -1
"""As whom a job runs whose submitter has no account: as its image says."""


@dataclass(frozen=True, slots=True)
class Fittings:
    """What a worker finds where it runs."""

    account: Account
    workdir: str | None = None
    """In place of what was asked for."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[Mount, ...] = ()
    code: str = ""
    """Where it has to fetch to what was shipped with it."""
    owner: tuple[str, str] = ("", "")
    """Name and uid of the object that stands for the job."""


class Premises(Protocol):
    def uid(self, caller: Caller) -> int:
        """Whom the jobs of a caller run as."""
        ...

    def check(self, request: JobRequest) -> None:
        """Raises for what cannot be had here."""
        ...

    async def fit_out(self, submission: Submission, request: JobRequest) -> Fittings:
        """For an attempt that starts."""
        ...

    def remove_checkpoints(self, job_id: JobId, user: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """`door` is the folder of the socket at which workers find us, containers included."""

    snapshots: Snapshots
    checkpoints: Checkpoints
    door: str

    def uid(self, caller: Caller) -> int:
        """Only a daemon of root has a choice."""
        if caller.uid is not None:
            return caller.uid
        if os.geteuid() == 0:
            what = f"{caller.user} is no account of this machine"
            raise ForbiddenError(what, "ask for another token")
        return os.geteuid()

    def check(self, request: JobRequest) -> None:
        for mount in request.mounts:
            if mount.startswith(VOLUMES):
                raise RefusedError("mounts", "only a cluster has volumes", "mount a folder")

    async def fit_out(self, submission: Submission, request: JobRequest) -> Fittings:
        account = account_of(submission.user, submission.uid if os.geteuid() == 0 else None)
        place = await asyncio.to_thread(
            self.checkpoints.make,
            submission.job_id,
            Owner(submission.user, account.uid, account.gid),
        )
        # A container sees of this machine only what is mounted into it.
        found = Fittings(
            account,
            env={"ROTA_CHECKPOINT_DIR": str(place)},
            mounts=(Mount(self.door, self.door), both(place)),
        )
        if not request.snapshot:
            return found
        folder = await asyncio.to_thread(
            self.snapshots.unpack,
            request.snapshot,
            owner=submission.uid,
            gid=os.getgid() if account.gid is None else account.gid,
        )
        workdir = str(folder / request.workdir)
        return replace(found, workdir=workdir, mounts=(*found.mounts, both(folder)))

    def remove_checkpoints(self, job_id: JobId, user: str) -> None:
        # Many a job has none; what its owner made impassable stays.
        with suppress(OSError):
            self.checkpoints.remove(job_id, user)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a cluster. `shared` are folders that are the same here and there; `volume` is
    where checkpoints go if not to a folder that is made here: `pvc:NAME/sub`, or nowhere.
    `accounts` are those of people there, whatever they are here."""

    snapshots: Snapshots
    checkpoints: Checkpoints | None
    volume: str
    shared: tuple[str, ...]
    is_reached: bool
    """Whether pods can ask us for what was shipped with their job."""
    owner: Callable[[JobId], tuple[str, str]]
    accounts: Mapping[str, Account]
    kept_claims: frozenset[str] = frozenset()
    """Those that no job may mount: the daemon's state, everybody's checkpoints."""
    unshared: str = ""
    """What the cluster calls its GPUs, where none of them can be shared."""

    def uid(self, caller: Caller) -> int:
        return NOBODY_IN_PARTICULAR if caller.uid is None else caller.uid

    def check(self, request: JobRequest) -> None:
        if len(dump_brief(request)) > MOST_BYTES:
            what = f"it is larger than {MOST_BYTES // 1000} kB, which a cluster does not keep"
            raise RefusedError("job", what, "put the command into a script, variables into a file")
        if self.unshared and _asks_for_a_share(request):
            what = f"a GPU that the cluster calls {self.unshared} cannot be shared"
            raise RefusedError("gpus", what, "ask for whole ones")
        if request.snapshot and not self.is_reached:
            what = "pods fetch what is shipped from the daemon, and cannot reach it here"
            raise RefusedError("snapshot", what, "start it with --listen, or set 'advertise'")
        for mount in request.mounts:
            source, target, _ = parse_mount(mount)
            if target.rstrip("/") in self._taken(request):
                what = f"{target} is where rota puts something of its own"
                raise RefusedError("mounts", what, "mount it below, or at another place")
            if claim_of(source) in self.kept_claims:
                what = f"the claim {claim_of(source)} is not for jobs to mount"
                raise RefusedError("mounts", what, "use one of your own")
            if not source.startswith(VOLUMES) and not self._is_shared(source):
                what = f"{source[:60]} is no folder of the nodes that jobs may mount"
                raise RefusedError("mounts", what, "use pvc:NAME, or ask for it in 'host_paths'")

    async def fit_out(self, submission: Submission, request: JobRequest) -> Fittings:
        account = self._account(submission)
        found = Fittings(account, owner=self.owner(submission.job_id))
        if self.checkpoints is not None:
            owner = Owner(submission.user, account.uid, account.gid)
            place = await asyncio.to_thread(self.checkpoints.make, submission.job_id, owner)
            found = replace(found, env={"ROTA_CHECKPOINT_DIR": str(place)}, mounts=(both(place),))
        elif self.volume:
            source = self.volume.replace(USER, submission.user).replace(JOB, submission.job_id)
            mount = Mount(source, CHECKPOINTS, is_writable=True)
            found = replace(found, env={"ROTA_CHECKPOINT_DIR": CHECKPOINTS}, mounts=(mount,))
        return await self._with_code(found, submission, request=request)

    def remove_checkpoints(self, job_id: JobId, user: str) -> None:
        if self.checkpoints is not None:
            with suppress(OSError):
                self.checkpoints.remove(job_id, user)

    async def _with_code(
        self, found: Fittings, submission: Submission, *, request: JobRequest
    ) -> Fittings:
        if not request.snapshot:
            return found
        owner = shipper_of(submission)
        if not await asyncio.to_thread(self.snapshots.has, request.snapshot, owner=owner):
            what = "what was shipped with it is not here: another daemon took it"
            hint = "ship it again; with their folder on a volume, all daemons have it"
            raise UserError(what, hint)
        return replace(found, code=SHIPPED, workdir=str(PurePosixPath(SHIPPED, request.workdir)))

    def _taken(self, request: JobRequest) -> list[str]:
        has = {SHIPPED: bool(request.snapshot), CHECKPOINTS: bool(self.volume)}
        return [place for place, is_taken in has.items() if is_taken]

    def _account(self, submission: Submission) -> Account:
        user, uid = submission.user, submission.uid
        if user in self.accounts:
            return self.accounts[user]
        if uid != NOBODY_IN_PARTICULAR:
            return account_of(user, uid)
        return replace(self.accounts.get(ANYBODY, Account()), name=user)

    def _is_shared(self, path: str) -> bool:
        return any(PurePosixPath(path).is_relative_to(each) for each in self.shared)


def _asks_for_a_share(request: JobRequest) -> bool:
    """What is no number of GPUs at all, others refuse."""
    with suppress(ValueError):
        return bool(request.gpu_memory) or parse_gpus(request.gpus).share is not None
    return False


def both(folder: Path) -> Mount:
    """At the same place, inside and outside."""
    return Mount(str(folder), str(folder), is_writable=True)
