"""Shipped code: missing blobs, uploads, snapshots. Also the files that an ended job left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, BinaryIO

from fastapi import Path, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, NameOrId, ServicesDep, json_response
from rota.api.router import LazyRouter
from rota.api.streams import byte_stream
from rota.daemon.artifacts.snapshots import SnapshotOwner, Snapshots
from rota.errors import UserError
from rota.heavy_work import run_heavy
from rota.thread_pools import TRANSFERS
from rota.wire.manifest import MAX_JSON_BYTES, SnapshotManifest

router = LazyRouter(prefix="/v1", tags=["snapshots"], responses=ERRORS)

MANIFEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Manifest of a folder: see docs/how-to/ship-code.md.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
CONTENT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
SLOWEST_BYTES_S = 16 * 1024
"""Lowest rate of an upload, after the time that every body has."""
PIECE_BYTES = 256 * 1024
Hash = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
FilePath = Annotated[str, Query(min_length=1, max_length=4096)]


class SlowUploadError(UserError):
    code = "too_slow"


@dataclass(frozen=True, slots=True)
class Missing:
    missing: list[str]


@dataclass(frozen=True, slots=True)
class StoredContent:
    id: str


@router.post(
    "/snapshots/missing",
    response_model=Missing,
    openapi_extra=MANIFEST,
    summary="List missing blobs of a folder",
)
async def missing(request: Request, *, services: ServicesDep, caller: CallerDep) -> Response:
    owner = services.snapshot_access.owner(caller)
    manifest = await _manifest(request)
    found = await TRANSFERS.run(services.snapshots.missing, manifest, owner=owner)
    return json_response(Missing(found))


@router.put(
    "/blobs/{sha256}",
    status_code=201,
    response_model=StoredContent,
    openapi_extra=CONTENT,
    summary="Upload a blob",
)
async def put_blob(
    sha256: Hash, request: Request, *, services: ServicesDep, caller: CallerDep
) -> Response:
    owner = services.snapshot_access.owner(caller)
    with await TRANSFERS.run(services.snapshots.upload, sha256, owner=owner) as content:
        async for chunk in _chunks(request, allowed_s=services.timeouts.body_s):
            await TRANSFERS.run(content.write, chunk)
        await TRANSFERS.run(content.keep)
    return json_response(StoredContent(sha256), status=201)


@router.post(
    "/snapshots",
    status_code=201,
    response_model=StoredContent,
    openapi_extra=MANIFEST,
    summary="Create a snapshot from uploaded blobs",
)
async def finish(request: Request, *, services: ServicesDep, caller: CallerDep) -> Response:
    owner = services.snapshot_access.owner(caller)
    manifest = await _manifest(request)
    made = await TRANSFERS.run(services.snapshots.finish, manifest, owner=owner)
    return json_response(StoredContent(made), status=201)


@router.get(
    "/snapshots/{snapshot_id}",
    response_class=Response,
    summary="Manifest of a snapshot",
)
async def manifest(snapshot_id: Hash, *, services: ServicesDep, caller: CallerDep) -> Response:
    owner = services.snapshot_access.owner(caller)
    found = await TRANSFERS.run(_manifest_json, services.snapshots, snapshot_id, owner=owner)
    return Response(found, media_type="application/json")


@router.get("/blobs/{sha256}", response_class=StreamingResponse, summary="Download a blob")
async def blob(sha256: Hash, *, services: ServicesDep, caller: CallerDep) -> Response:
    owner = services.snapshot_access.owner(caller)
    file = await TRANSFERS.run(services.snapshots.open, sha256, owner=owner)
    return StreamingResponse(_pieces(file), media_type="application/octet-stream")


@router.get(
    "/code",
    response_class=StreamingResponse,
    summary="Download the shipped code of a job as a tar archive",
)
async def code(*, services: ServicesDep, caller: CallerDep) -> Response:
    """Needs the token of the job's attempt."""
    found = await TRANSFERS.run(services.snapshot_access.archive, caller)
    return StreamingResponse(found, media_type="application/x-tar")


@router.get(
    "/jobs/{word}/files",
    response_class=StreamingResponse,
    summary="Download a file or folder of an ended job as a tar archive",
)
async def files(
    word: NameOrId, path: FilePath, *, services: ServicesDep, caller: CallerDep
) -> Response:
    """A relative path starts at the working directory of the job."""
    found = await services.job_files.archive(caller, word, path=path)
    return byte_stream(found, services=services, caller=caller)


def _manifest_json(snapshots: Snapshots, snapshot_id: str, *, owner: SnapshotOwner) -> bytes:
    return snapshots.manifest(snapshot_id, owner=owner).to_json()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


async def _chunks(request: Request, *, allowed_s: float) -> AsyncIterator[bytes]:
    """Yield the body in pieces. Raises if the client sends too slowly or disconnects."""
    chunks = request.stream()
    deadline_s = asyncio.get_running_loop().time() + allowed_s
    while True:
        try:
            async with asyncio.timeout_at(deadline_s):
                chunk = await anext(chunks, b"")
        except TimeoutError:
            raise SlowUploadError("the upload is too slow", "try again") from None
        except ClientDisconnect:
            raise UserError("the upload was interrupted", "try again") from None
        if not chunk:
            return
        yield chunk
        deadline_s += len(chunk) / SLOWEST_BYTES_S


async def _manifest(request: Request) -> SnapshotManifest:
    body = await request.body()
    if len(body) > MAX_JSON_BYTES:
        raise UserError("the manifest is too large", "exclude files with .rotaignore")
    return await run_heavy(partial(SnapshotManifest.of_json, body))
