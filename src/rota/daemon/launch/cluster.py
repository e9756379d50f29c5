"""The launch environment of workers that are pods of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

from rota.core.model.job import JobId
from rota.core.model.units import parse_gpus
from rota.daemon.access.accounts import DEFAULT_ACCOUNT
from rota.daemon.access.authorization import Caller
from rota.daemon.artifacts.snapshots import Snapshots, snapshot_owner_of
from rota.daemon.errors import RefusedError
from rota.daemon.jobs.validation import claim_of, parse_mount
from rota.daemon.launch.checkpoint_dirs import JOB, USER, CheckpointDirOwner, CheckpointDirs
from rota.daemon.launch.interface import VOLUMES, LaunchContext, same_path_mount
from rota.daemon.launch.programs import account_of
from rota.engines.interface import Mount, UnixAccount
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.codec import dump_brief
from rota.wire.jobs import JobRequest

CHECKPOINTS, SHIPPED = "/checkpoints", "/shipped"
"""Paths inside a pod: the volume for checkpoints, and the shipped code."""
MAX_REQUEST_BYTES = 80_000
"""An object's annotations hold 256 KiB, and store a request with escaped quotes."""
IMAGE_DEFAULT_UID = -1
"""Stored for users without an account: their jobs run as the user of the image."""


class ObjectOwners(Protocol):
    """Knows the TrainingJobs of jobs."""

    def owner(self, job_id: JobId) -> tuple[str, str]:
        """Name and uid of the job's TrainingJob; empty if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterEnvironment:
    """The nodes of a cluster. `shared` are folders that daemon and nodes see under the same path.
    Checkpoints go to `checkpoints`, else to the `volume` (`pvc:NAME/sub`), else nowhere.
    `accounts` maps users to the accounts of their jobs."""

    snapshots: Snapshots
    checkpoints: CheckpointDirs | None
    volume: str
    shared: tuple[str, ...]
    is_reached: bool
    """Whether pods can reach the daemon to fetch shipped code."""
    owners: ObjectOwners
    accounts: Mapping[str, UnixAccount]
    reserved_claims: frozenset[str] = frozenset()
    """Claims that no job may mount: the daemon's state, the checkpoints of all users."""
    unshareable_resource: str = ""
    """The name of the GPU resource, if its GPUs cannot be shared."""

    def uid(self, caller: Caller) -> int:
        return IMAGE_DEFAULT_UID if caller.uid is None else caller.uid

    def check(self, request: JobRequest) -> None:
        if len(dump_brief(request)) > MAX_REQUEST_BYTES:
            what = f"it is larger than {MAX_REQUEST_BYTES // 1000} kB, the limit of a cluster"
            raise RefusedError("job", what, "put the command into a script, variables into a file")
        if self.unshareable_resource and _requests_gpu_share(request):
            what = f"GPUs of resource {self.unshareable_resource} cannot be shared"
            raise RefusedError("gpus", what, "request whole GPUs")
        if request.snapshot and not self.is_reached:
            what = "pods cannot reach the daemon to fetch shipped code"
            raise RefusedError(
                "snapshot", what, "start the daemon with --listen, or set 'advertise'"
            )
        for mount in request.mounts:
            source, target, _ = parse_mount(mount)
            if target.rstrip("/") in self._taken(request):
                what = f"rota itself uses {target}"
                raise RefusedError("mounts", what, "mount it at another path")
            if claim_of(source) in self.reserved_claims:
                what = f"jobs may not mount the claim {claim_of(source)}"
                raise RefusedError("mounts", what, "use a claim of your own")
            if not source.startswith(VOLUMES) and not self._is_shared(source):
                what = f"jobs may not mount the folder {source[:60]} of the nodes"
                raise RefusedError(
                    "mounts",
                    what,
                    "use pvc:NAME, or ask an administrator to add it to 'host_paths'",
                )

    def prepare(self, submission: Submission, request: JobRequest) -> LaunchContext:
        account = self._account(submission)
        found = LaunchContext(account, owner=self.owners.owner(submission.job_id))
        if self.checkpoints is not None:
            owner = CheckpointDirOwner(submission.user, account.uid, account.gid)
            place = self.checkpoints.make(submission.job_id, owner)
            found = replace(
                found, env={"ROTA_CHECKPOINT_DIR": str(place)}, mounts=(same_path_mount(place),)
            )
        elif self.volume:
            source = self.volume.replace(USER, submission.user).replace(JOB, submission.job_id)
            mount = Mount(source, CHECKPOINTS, is_writable=True)
            found = replace(found, env={"ROTA_CHECKPOINT_DIR": CHECKPOINTS}, mounts=(mount,))
        return self._with_code(found, submission, request=request)

    def kept_files(
        self,
        submission: Submission,
        request: JobRequest,  # noqa: ARG002 - of the interface
    ) -> LaunchContext:
        raise UserError(
            f"job {submission.job_id} has ended, and its files went with its pods",
            "write results to a volume, or to the folder in $ROTA_CHECKPOINT_DIR",
        )

    def remove_checkpoints(self, job_id: JobId, user: str) -> None:
        if self.checkpoints is not None:
            with suppress(OSError):
                self.checkpoints.remove(job_id, user)

    def _with_code(
        self, found: LaunchContext, submission: Submission, *, request: JobRequest
    ) -> LaunchContext:
        if not request.snapshot:
            return found
        owner = snapshot_owner_of(submission)
        if not self.snapshots.has(request.snapshot, owner=owner):
            what = "this daemon does not have the shipped code: another daemon received it"
            hint = "ship it again; daemons share code if their state folder is on a shared volume"
            raise UserError(what, hint)
        return replace(found, code=SHIPPED, workdir=str(PurePosixPath(SHIPPED, request.workdir)))

    def _taken(self, request: JobRequest) -> list[str]:
        has = {SHIPPED: bool(request.snapshot), CHECKPOINTS: bool(self.volume)}
        return [place for place, is_taken in has.items() if is_taken]

    def _account(self, submission: Submission) -> UnixAccount:
        user, uid = submission.user, submission.uid
        if user in self.accounts:
            return self.accounts[user]
        if uid != IMAGE_DEFAULT_UID:
            return account_of(user, uid)
        return replace(self.accounts.get(DEFAULT_ACCOUNT, UnixAccount()), name=user)

    def _is_shared(self, path: str) -> bool:
        return any(PurePosixPath(path).is_relative_to(each) for each in self.shared)


def _requests_gpu_share(request: JobRequest) -> bool:
    """An invalid number of GPUs is rejected elsewhere."""
    with suppress(ValueError):
        return bool(request.gpu_memory) or parse_gpus(request.gpus).share is not None
    return False
