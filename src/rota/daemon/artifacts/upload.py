"""The upload of one blob from a client to disk, chunk by chunk."""

from __future__ import annotations

import hashlib
import os

from rota.daemon.artifacts.fsutil import occupied_bytes, translate_os_errors
from rota.daemon.artifacts.user_store import UserSnapshotStore
from rota.errors import UserError
from rota.wire.manifest import MAX_FILE_BYTES

SHIP_AGAIN = "the file may have changed during the upload; ship the folder again"


class BlobUpload:
    """A context manager: `write` the chunks, then `keep` the blob. Without `keep`, the blob is
    deleted at the end."""

    def __init__(self, user_store: UserSnapshotStore, sha256: str) -> None:
        self._user_store = user_store
        self._sha256 = sha256
        self._hasher = hashlib.sha256()
        self._n_bytes = 0
        self._reserved_bytes = 0
        self._is_kept = False
        self._draft = user_store.draft()
        self._user_store.reserve(0, 1)
        try:
            self._reserve(0)
            with translate_os_errors(user_store.folder):
                self._file = self._draft.open("xb", buffering=0)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> BlobUpload:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._is_kept:
            with translate_os_errors(self._user_store.folder):
                self._draft.unlink(missing_ok=True)
            self._release()

    def write(self, chunk: bytes) -> None:
        self._n_bytes += len(chunk)
        if self._n_bytes > MAX_FILE_BYTES:
            message = f"file with hash {self._sha256!r} is larger than {MAX_FILE_BYTES:,} bytes"
            raise UserError(message, "exclude the file in .rotaignore")
        self._reserve(self._n_bytes)
        self._hasher.update(chunk)
        with translate_os_errors(self._user_store.folder):
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._file.write(rest) :]

    def keep(self) -> None:
        """Check the hash and store the blob; it is on disk when this returns."""
        if self._hasher.hexdigest() != self._sha256:
            message = f"uploaded file does not match its hash {self._sha256!r}"
            raise UserError(message, SHIP_AGAIN)
        with translate_os_errors(self._user_store.folder):
            os.fchmod(self._file.fileno(), 0o400)
            os.fsync(self._file.fileno())
        self._user_store.put_blob(self._sha256, self._draft)
        self._is_kept = True

    def _reserve(self, n_bytes: int) -> None:
        more_bytes = occupied_bytes(n_bytes) - self._reserved_bytes
        if more_bytes:
            self._user_store.reserve(more_bytes)
            self._reserved_bytes += more_bytes

    def _release(self) -> None:
        self._user_store.reserve(-self._reserved_bytes, -1)
        self._reserved_bytes = 0
