"""Code that is shipped with jobs: what is missing, one content after the other, then the whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Path, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from rota.api.answers import ERRORS, Reaches, answer
from rota.api.auth import Asks
from rota.errors import UserError
from rota.wire.manifest import MAX_JSON_BYTES, Manifest

router = APIRouter(prefix="/v1", tags=["code"], responses=ERRORS)

MANIFEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The files of a folder: see docs/reference/ship.md.",
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
"""Whoever sends a content more slowly than this, beyond the time that any body has, is refused."""
PIECE_BYTES = 256 * 1024
Hash = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]


class SlowError(UserError):
    code = "too_slow"


@dataclass(frozen=True, slots=True)
class Missing:
    missing: list[str]


@dataclass(frozen=True, slots=True)
class Kept:
    id: str


@router.post(
    "/snapshots/missing",
    response_model=Missing,
    openapi_extra=MANIFEST,
    summary="Which contents of a folder are not here yet",
)
async def missing(request: Request, *, house: Reaches, caller: Asks) -> Response:
    owner = house.desk.shipper(caller)
    manifest = await _manifest(request)
    found = await asyncio.to_thread(house.desk.snapshots.missing, manifest, owner=owner)
    return answer(Missing(found))


@router.put(
    "/blobs/{sha256}",
    status_code=201,
    response_model=Kept,
    openapi_extra=CONTENT,
    summary="Send one content",
)
async def put_blob(sha256: Hash, request: Request, *, house: Reaches, caller: Asks) -> Response:
    owner = house.desk.shipper(caller)
    with house.desk.snapshots.incoming(sha256, owner=owner) as content:
        async for chunk in _chunks(request, allowed_s=house.patience.body_s):
            await asyncio.to_thread(content.write, chunk)
        await asyncio.to_thread(content.keep)
    return answer(Kept(sha256), status=201)


@router.post(
    "/snapshots",
    status_code=201,
    response_model=Kept,
    openapi_extra=MANIFEST,
    summary="Make a snapshot of contents that are all here",
)
async def finish(request: Request, *, house: Reaches, caller: Asks) -> Response:
    owner = house.desk.shipper(caller)
    manifest = await _manifest(request)
    made = await asyncio.to_thread(house.desk.snapshots.finish, manifest, owner=owner)
    return answer(Kept(made), status=201)


@router.get(
    "/snapshots/{snapshot_id}",
    response_class=Response,
    summary="What a folder holds that you shipped",
)
async def manifest(snapshot_id: Hash, *, house: Reaches, caller: Asks) -> Response:
    owner = house.desk.shipper(caller)
    found = await asyncio.to_thread(house.desk.snapshots.manifest, snapshot_id, owner=owner)
    return Response(found.to_json(), media_type="application/json")


@router.get(
    "/blobs/{sha256}", response_class=StreamingResponse, summary="A content that you shipped"
)
async def blob(sha256: Hash, *, house: Reaches, caller: Asks) -> Response:
    owner = house.desk.shipper(caller)
    file = await asyncio.to_thread(house.desk.snapshots.open, sha256, owner=owner)
    return StreamingResponse(_pieces(file), media_type="application/octet-stream")


@router.get(
    "/code",
    response_class=StreamingResponse,
    summary="What was shipped with a job, as a tar archive",
)
async def code(*, house: Reaches, caller: Asks) -> Response:
    """With the token of the job's attempt only."""
    found = await asyncio.to_thread(house.desk.shipment, caller)
    return StreamingResponse(found, media_type="application/x-tar")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


async def _chunks(request: Request, *, allowed_s: float) -> AsyncIterator[bytes]:
    """What is sent, as it comes: no faster than it is taken, no slower than is bearable."""
    chunks = request.stream()
    deadline_s = asyncio.get_running_loop().time() + allowed_s
    while True:
        try:
            async with asyncio.timeout_at(deadline_s):
                chunk = await anext(chunks, b"")
        except TimeoutError:
            raise SlowError("the content comes too slowly", "send it again") from None
        except ClientDisconnect:
            raise UserError("the content broke off", "send it again") from None
        if not chunk:
            return
        yield chunk
        deadline_s += len(chunk) / SLOWEST_BYTES_S


async def _manifest(request: Request) -> Manifest:
    body = await request.body()
    if len(body) > MAX_JSON_BYTES:
        raise UserError("the list of files is too long", "leave files out by .rotaignore")
    return await asyncio.to_thread(Manifest.of_json, body)
