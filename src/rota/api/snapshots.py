"""Code that is shipped with jobs: what is missing, one content after the other, then the whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from rota.api.answers import ERRORS, Reaches, answer
from rota.api.auth import Asks
from rota.api.bounds import BODY_S
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
    manifest = await _manifest(request)
    owner = house.desk.uid(caller)
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
    owner = house.desk.uid(caller)
    chunks = request.stream()
    with house.desk.snapshots.incoming(sha256, owner=owner) as content:
        while True:
            try:
                chunk = await asyncio.wait_for(anext(chunks, b""), BODY_S)
            except TimeoutError:
                raise SlowError("the content stopped coming", "send it again") from None
            if not chunk:
                break
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
    manifest = await _manifest(request)
    owner = house.desk.uid(caller)
    made = await asyncio.to_thread(house.desk.snapshots.finish, manifest, owner=owner)
    return answer(Kept(made), status=201)


async def _manifest(request: Request) -> Manifest:
    body = await request.body()
    if len(body) > MAX_JSON_BYTES:
        raise UserError("the list of files is too long", "leave files out by .rotaignore")
    return await asyncio.to_thread(Manifest.of_json, body)
