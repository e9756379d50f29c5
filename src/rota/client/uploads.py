"""Shipping as the daemon's API takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from rota.client.http import Http

if TYPE_CHECKING:
    from rota.wire.manifest import Manifest


class Uploads:
    """Satisfies `rota.client.shipping.ShippingApi`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def missing(self, manifest: Manifest) -> list[str]:
        return self._http.send("POST", "/snapshots/missing", content=manifest.to_json())["missing"]

    def put_blob(self, sha256: str, file: BinaryIO) -> None:
        self._http.send("PUT", f"/blobs/{sha256}", content=file)

    def finish(self, manifest: Manifest) -> str:
        return self._http.send("POST", "/snapshots", content=manifest.to_json())["id"]

    def manifest(self, snapshot_id: str) -> bytes:
        """What a snapshot holds, as text: whoever reads it checks it."""
        return b"".join(self._http.bytes(f"/snapshots/{snapshot_id}", {}))

    def blob(self, sha256: str) -> Iterator[bytes]:
        return self._http.bytes(f"/blobs/{sha256}", {})
