"""Moves a job from one daemon to another, in steps that may be taken again.

It is handed over on hold, ended where it was, and only then let go where it is now. So it runs in
one place at most, wherever that breaks off; and whoever tries again goes on from there, because a
hand-over has a key that belongs to the job.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from typing import BinaryIO

from rota.client.client import Client
from rota.client.shipping import deliver
from rota.client.uploads import Uploads
from rota.errors import RotaError, UserError
from rota.wire.jobs import FINAL_STATES, JobDetails
from rota.wire.manifest import File, Manifest
from rota.wire.moves import MOVED, Code, Parcel, key_of, moved


def hand_over(target: Client, parcel: Parcel) -> str:
    """The id of the job there, which is on hold."""
    request = replace(parcel.request, hold=True, after=[])
    if parcel.code is not None:
        code, uploads = parcel.code, target.shipping()

        def send(file: File) -> None:
            with code.open(file.sha256) as content:
                uploads.put_blob(file.sha256, content)

        request = replace(request, snapshot=deliver(code.manifest, uploads, send=send))
    return target.submit(request, key=parcel.key, origin=parcel.origin)


def let_go(target: Client, job_id: str) -> None:
    """What was handed over may run; unless it does already, or is over."""
    if target.show(job_id).job.state == "held":
        target.release(job_id)


def take_back(target: Client, job_id: str, *, reason: str) -> None:
    """What was handed over is not to run there."""
    if target.show(job_id).job.state not in FINAL_STATES:
        target.cancel(job_id, reason=reason)


def move(source: Client, target: Client, *, job: str, to: str) -> str:
    """The id of the job where it is now. `to` is what its owner calls that place."""
    found = source.show(job)
    _check(source, found)
    is_held_by_us = found.job.state == "queued"
    if is_held_by_us:
        source.hold(found.job.id, reason=f"on its way to {to}")
    try:
        job_id = hand_over(target, _parcel(source, found))
    except RotaError as error:
        if is_held_by_us:
            source.release(found.job.id, reason=f"stays here: {to} did not take it: {error}"[:200])
        raise
    _end(source, found, reason=moved(to, job_id))
    let_go(target, job_id)
    return job_id


def _check(source: Client, found: JobDetails) -> None:
    job = found.job
    if job.user != source.me():
        what = f"job {job.id} belongs to {job.user}, and would run as you"
        raise UserError(what, "only its owner may move it")
    if job.state in FINAL_STATES:
        return
    for other in found.after:
        if source.show(other).job.state != "succeeded":
            what = f"job {job.id} waits for job {other}, which stays here"
            raise UserError(what, "move it when that has succeeded")


def _end(source: Client, found: JobDetails, *, reason: str) -> None:
    """Returns when nothing of it runs any more."""
    if found.job.state in FINAL_STATES:
        return
    if source.show(found.job.id).job.state not in FINAL_STATES:
        source.cancel(found.job.id, reason=reason)
    source.wait(found.job.id)


def _parcel(source: Client, found: JobDetails) -> Parcel:
    job = found.job
    is_new = job.state in FINAL_STATES and not job.reason.startswith(MOVED)
    request = source.again(job.id)
    return Parcel(
        request=request,
        # Of a job that is over, every copy is a job of its own.
        key=os.urandom(16).hex() if is_new else key_of(job.id, job.submitted_s),
        origin=f"job {job.id} at {source.door}"[:200],
        code=_code(source.shipping(), request.snapshot) if request.snapshot else None,
    )


def _code(uploads: Uploads, snapshot_id: str) -> Code:
    manifest = Manifest.of_json(uploads.manifest(snapshot_id))

    def fetch(sha256: str) -> BinaryIO:
        """Into a file without a name: a content may be larger than the memory we want to take."""
        file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
        try:
            for piece in uploads.blob(sha256):
                file.write(piece)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    return Code(manifest, fetch)
