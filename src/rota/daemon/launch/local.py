"""The launch environment of workers that are processes or containers on this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rota.core.model.job import JobId
from rota.daemon.access.accounts import require_unchanged_account
from rota.daemon.access.authorization import Caller, uid_of_jobs
from rota.daemon.artifacts.snapshots import Snapshots
from rota.daemon.artifacts.user_store import CorruptSnapshotError
from rota.daemon.errors import RefusedError
from rota.daemon.launch.checkpoint_dirs import CheckpointDirOwner, CheckpointDirs
from rota.daemon.launch.interface import VOLUMES, LaunchContext, same_path_mount
from rota.daemon.launch.programs import account_of
from rota.engines.interface import Mount
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.jobs import JobRequest


@dataclass(frozen=True, slots=True)
class LocalEnvironment:
    """Workers, also in containers, reach the daemon by the socket in `socket_dir`."""

    snapshots: Snapshots
    checkpoints: CheckpointDirs
    socket_dir: str

    def uid(self, caller: Caller) -> int:
        """Only a daemon that runs as root can use several accounts."""
        return uid_of_jobs(caller, daemon_uid=os.geteuid())

    def check(self, request: JobRequest) -> None:
        for mount in request.mounts:
            if mount.startswith(VOLUMES):
                raise RefusedError("mounts", "volumes exist on a cluster only", "mount a folder")

    def prepare(self, submission: Submission, request: JobRequest) -> LaunchContext:
        uid = submission.uid if os.geteuid() == 0 else None
        if uid is not None:
            require_unchanged_account(submission.user, uid)
        account = account_of(submission.user, uid)
        owner = CheckpointDirOwner(submission.user, account.uid, account.gid)
        place = self.checkpoints.make(submission.job_id, owner)
        # A container sees mounted folders only.
        found = LaunchContext(
            account,
            env={"ROTA_CHECKPOINT_DIR": str(place)},
            mounts=(Mount(self.socket_dir, self.socket_dir), same_path_mount(place)),
        )
        if not request.snapshot:
            return found
        gid = os.getgid() if account.gid is None else account.gid
        folder = self._unpack(request.snapshot, submission, gid=gid)
        workdir = str(folder / request.workdir)
        return replace(found, workdir=workdir, mounts=(*found.mounts, same_path_mount(folder)))

    def _unpack(self, snapshot: str, submission: Submission, *, gid: int) -> Path:
        job_id, uid = submission.job_id, submission.uid
        try:
            return self.snapshots.unpack(snapshot, job_id=job_id, owner=uid, gid=gid)
        except CorruptSnapshotError as error:
            # A later start would fail, too: only the user can ship the code again.
            raise UserError(error.message, error.hint) from error

    def kept_files(self, submission: Submission, request: JobRequest) -> LaunchContext:
        account = account_of(submission.user, submission.uid if os.geteuid() == 0 else None)
        if not request.snapshot:
            return LaunchContext(account, workdir=request.workdir or account.home)
        folder = self.snapshots.workdir(submission.job_id, owner=submission.uid)
        if folder is None:
            what = f"the working folder of job {submission.job_id} was deleted"
            raise UserError(what, "it is kept for the time in the setting 'keep_workdir'")
        return LaunchContext(account, workdir=str(folder / request.workdir))

    def remove_checkpoints(self, job_id: JobId, user: str) -> None:
        # Many jobs have none, and a folder that its owner protected cannot be deleted.
        with suppress(OSError):
            self.checkpoints.remove(job_id, user)
