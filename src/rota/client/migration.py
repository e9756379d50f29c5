"""Move a job from one daemon to another, in idempotent steps.

The job is submitted to the target on hold, cancelled at the source, and then released at the
target. So the job runs on at most one daemon, wherever the move stops. A repeated move continues,
because the submit has an idempotency key that belongs to the job.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from typing import BinaryIO

from rota.client.client import Client
from rota.client.shipping import Uploads, deliver
from rota.errors import RotaError, UserError
from rota.wire.jobs import FINAL_STATES, JobDetails
from rota.wire.manifest import ManifestFile, SnapshotManifest
from rota.wire.moves import MOVED_PREFIX, JobTransfer, ShippedCode, move_key, moved_reason


def hand_over(target: Client, transfer: JobTransfer) -> str:
    """Submit the job to the target on hold, with its code; return its id there."""
    request = replace(transfer.request, hold=True, after=[], after_any=[], after_failed=[])
    if transfer.code is not None:
        code, uploads = transfer.code, target.shipping()

        def send(file: ManifestFile) -> None:
            with code.open(file.sha256) as content:
                uploads.put_blob(file.sha256, content)

        request = replace(request, snapshot=deliver(code.manifest, uploads, send=send))
    return target.submit(request, key=transfer.key, origin=transfer.origin)


def release_moved_job(target: Client, job_id: str) -> None:
    """Release a moved job at the target, unless it runs or has ended."""
    if target.show(job_id).job.state == "held":
        target.release(job_id)


def cancel_moved_job(target: Client, job_id: str, *, reason: str) -> None:
    """Cancel a moved job at the target, unless it has ended."""
    if target.show(job_id).job.state not in FINAL_STATES:
        target.cancel(job_id, reason=reason)


def move(source: Client, target: Client, *, job: str, to: str) -> str:
    """Move a job and return its new id. `to` is the user's name of the target."""
    found = source.show(job)
    _check(source, found)
    is_held_by_us = found.job.state == "queued"
    if is_held_by_us:
        source.hold(found.job.id, reason=f"moving to {to}")
    try:
        job_id = hand_over(target, _transfer(source, found))
    except RotaError as error:
        if is_held_by_us:
            source.release(found.job.id, reason=f"not moved to {to}: {error}"[:200])
        raise
    _end(source, found, reason=moved_reason(to, job_id))
    release_moved_job(target, job_id)
    return job_id


def _check(source: Client, found: JobDetails) -> None:
    job = found.job
    if job.user != source.me():
        what = f"job {job.id} belongs to {job.user}"
        raise UserError(what, "only the owner can move a job")
    if job.state in FINAL_STATES:
        return
    for other in found.after:
        if source.show(other).job.state != "succeeded":
            what = f"job {job.id} depends on job {other}, which has not succeeded"
            raise UserError(what, f"move it after job {other} has succeeded")
    for other in [*found.after_any, *found.after_failed]:
        if source.show(other).job.state not in FINAL_STATES:
            what = f"job {job.id} depends on job {other}, which has not ended"
            raise UserError(what, f"move it after job {other} has ended")


def _end(source: Client, found: JobDetails, *, reason: str) -> None:
    """Cancel the job at the source and wait until it has ended."""
    if found.job.state in FINAL_STATES:
        return
    if source.show(found.job.id).job.state not in FINAL_STATES:
        source.cancel(found.job.id, reason=reason)
    source.wait(found.job.id)


def _transfer(source: Client, found: JobDetails) -> JobTransfer:
    job = found.job
    is_new = job.state in FINAL_STATES and not job.reason.startswith(MOVED_PREFIX)
    request = source.again(job.id)
    return JobTransfer(
        request=request,
        # Each copy of an ended job is a new job, so it gets a random key.
        key=os.urandom(16).hex() if is_new else move_key(job.id, job.submitted_s),
        origin=f"job {job.id} at {source.endpoint}"[:200],
        code=_code(source.shipping(), request.snapshot) if request.snapshot else None,
    )


def _code(uploads: Uploads, snapshot_id: str) -> ShippedCode:
    manifest = SnapshotManifest.of_json(uploads.manifest(snapshot_id))

    def fetch(sha256: str) -> BinaryIO:
        """Download to a temporary file: a blob may be too large for memory."""
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            for piece in uploads.blob(sha256):
                file.write(piece)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    return ShippedCode(manifest, fetch)
