"""Which shipped code a caller may read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rota.core.model.job import JobId
from rota.daemon.access.authorization import Caller, require_job_token, require_write
from rota.daemon.artifacts.snapshots import (
    SnapshotOwner,
    Snapshots,
    snapshot_owner,
    snapshot_owner_of,
)
from rota.daemon.artifacts.tar_stream import archive
from rota.daemon.errors import NotFoundError
from rota.daemon.launch.interface import LaunchEnvironment
from rota.daemon.launch.programs import unpack
from rota.store.interface import Store
from rota.wire.moves import ShippedCode


class SnapshotAccess:
    def __init__(
        self,
        snapshots: Snapshots,
        store: Store,
        *,
        launch_environment: LaunchEnvironment,
        clock: Callable[[], float],
    ) -> None:
        self._snapshots = snapshots
        self._store = store
        self._launch_environment = launch_environment
        self._clock = clock

    def owner(self, caller: Caller) -> SnapshotOwner:
        """The owner of the snapshots that this caller may read and write."""
        require_write(caller)
        return snapshot_owner(caller.user, self._launch_environment.uid(caller))

    def archive(self, caller: Caller) -> Iterator[bytes]:
        """The snapshot of the calling job, as a tar archive."""
        submission = require_job_token(
            caller,
            self._store.submission,
            action="fetch its shipped code",
            hint="'rota show --json' shows the id of the snapshot; fetch that snapshot",
        )
        snapshot_id = unpack(submission).request.snapshot
        if not snapshot_id:
            raise NotFoundError(f"no code was shipped with job {submission.job_id}")
        owner = snapshot_owner_of(submission)
        manifest = self._snapshots.manifest(snapshot_id, owner=owner)
        return archive(manifest, partial(self._snapshots.open, owner=owner), now_s=self._clock())

    def shipped_code(self, job_id: JobId, snapshot_id: str) -> ShippedCode:
        """The snapshot of a job, for another daemon."""
        submission = self._store.submission(job_id)
        if submission is None:
            raise NotFoundError(f"the request of job {job_id} is not in the store")
        owner = snapshot_owner_of(submission)
        manifest = self._snapshots.manifest(snapshot_id, owner=owner)
        return ShippedCode(manifest, partial(self._snapshots.open, owner=owner))
