"""Streams a snapshot as a tar archive, for workers on machines without access to this disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from tarfile import BLOCKSIZE, DIRTYPE, NUL, PAX_FORMAT, REGTYPE, SYMTYPE, TarInfo
from typing import BinaryIO

from rota.errors import UnavailableError
from rota.wire.manifest import ManifestEntry, ManifestFile, ManifestLink, SnapshotManifest

PIECE_BYTES = 256 * 1024
MODES = {DIRTYPE: 0o777, SYMTYPE: 0o777, REGTYPE: 0o444}
PROGRAM_MODE = 0o555
"""Readable for all users: the worker may run as another user than the one that unpacks. The target
folder itself is private to the worker."""

Contents = Callable[[str], BinaryIO]
"""Opens the blob with a hash."""


def archive(manifest: SnapshotManifest, contents: Contents, *, now_s: float) -> Iterator[bytes]:
    """Yield the tar archive. If a blob is corrupt, it raises before the end of the archive, so that
    the receiver notices an incomplete archive."""
    for path in sorted(manifest.folders):
        yield _head(path, DIRTYPE, now_s=now_s)
    for each in manifest.entries:
        yield from _member(each, contents, now_s=now_s)
    yield NUL * (2 * BLOCKSIZE)


def _member(entry: ManifestEntry, contents: Contents, *, now_s: float) -> Iterator[bytes]:
    match entry:
        case ManifestLink():
            yield _head(entry.path, SYMTYPE, now_s=now_s, linkname=entry.target)
        case ManifestFile():
            mode = {"mode": PROGRAM_MODE} if entry.is_executable else {}
            yield _head(entry.path, REGTYPE, now_s=now_s, size=entry.size_bytes, **mode)
            yield from _content(entry, contents(entry.sha256))
            yield NUL * (-entry.size_bytes % BLOCKSIZE)


def _content(file: ManifestFile, source: BinaryIO) -> Iterator[bytes]:
    hasher = hashlib.sha256()
    with source:
        while piece := source.read(PIECE_BYTES):
            hasher.update(piece)
            yield piece
    if hasher.hexdigest() != file.sha256:
        raise UnavailableError(f"shipped file {file.path!r} is corrupt", "ship the folder again")


def _head(path: str, kind: bytes, *, now_s: float, **more: int | str) -> bytes:
    member = TarInfo(path)
    fields = {"type": kind, "mode": MODES[kind], "mtime": int(now_s), **more}
    for name, value in fields.items():
        setattr(member, name, value)
    return member.tobuf(PAX_FORMAT)
