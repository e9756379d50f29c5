"""A content on its way from a client to the disk, chunk by chunk."""

from __future__ import annotations

import hashlib
import os

from rota.daemon.disk import faults, occupied_bytes
from rota.daemon.shelf import Shelf
from rota.errors import UserError
from rota.wire.manifest import MAX_FILE_BYTES

SHIP_AGAIN = "the file may have changed while it was sent: ship the folder again"


class Incoming:
    """A context: `write` what comes, then `keep` it. Without `keep`, nothing of it stays."""

    def __init__(self, shelf: Shelf, sha256: str) -> None:
        self._shelf = shelf
        self._sha256 = sha256
        self._hasher = hashlib.sha256()
        self._n_bytes = 0
        self._reserved_bytes = 0
        self._is_kept = False
        self._draft = shelf.draft()
        self._reserve(0)
        try:
            with faults(shelf.folder):
                self._file = self._draft.open("xb", buffering=0)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._is_kept:
            with faults(self._shelf.folder):
                self._draft.unlink(missing_ok=True)
            self._release()

    def write(self, chunk: bytes) -> None:
        self._n_bytes += len(chunk)
        if self._n_bytes > MAX_FILE_BYTES:
            message = f"content {self._sha256!r} has more than {MAX_FILE_BYTES:,} bytes"
            raise UserError(message, "leave the file out by a line in .rotaignore")
        self._reserve(self._n_bytes)
        self._hasher.update(chunk)
        with faults(self._shelf.folder):
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._file.write(rest) :]

    def keep(self) -> None:
        """On disk for good when this returns."""
        if self._hasher.hexdigest() != self._sha256:
            message = f"what was sent as content {self._sha256!r} has another hash"
            raise UserError(message, SHIP_AGAIN)
        with faults(self._shelf.folder):
            os.fchmod(self._file.fileno(), 0o400)
            os.fsync(self._file.fileno())
        self._shelf.put_blob(self._sha256, self._draft)
        self._is_kept = True

    def _reserve(self, n_bytes: int) -> None:
        more_bytes = occupied_bytes(n_bytes) - self._reserved_bytes
        if more_bytes:
            self._shelf.reserve(more_bytes)
            self._reserved_bytes += more_bytes

    def _release(self) -> None:
        self._shelf.reserve(-self._reserved_bytes)
        self._reserved_bytes = 0
