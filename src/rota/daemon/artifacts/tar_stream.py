"""A shipped folder as one stream, for workers that do not see the disk of this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from tarfile import BLOCKSIZE, DIRTYPE, NUL, PAX_FORMAT, REGTYPE, SYMTYPE, TarInfo
from typing import BinaryIO

from rota.errors import UnavailableError
from rota.wire.manifest import Entry, File, Link, Manifest

PIECE_BYTES = 256 * 1024
MODES = {DIRTYPE: 0o777, SYMTYPE: 0o777, REGTYPE: 0o444}
PROGRAM_MODE = 0o555
"""Whoever unpacks it has a place of their own for it, and may not be who runs there."""

Contents = Callable[[str], BinaryIO]
"""What has this hash."""


def archive(manifest: Manifest, contents: Contents, *, now_s: float) -> Iterator[bytes]:
    """As tar. Breaks off without its end if a content is not what it was: what was read of it is
    worth nothing then."""
    for path in sorted(manifest.folders):
        yield _head(path, DIRTYPE, now_s=now_s)
    for each in manifest.entries:
        yield from _member(each, contents, now_s=now_s)
    yield NUL * (2 * BLOCKSIZE)


def _member(entry: Entry, contents: Contents, *, now_s: float) -> Iterator[bytes]:
    match entry:
        case Link():
            yield _head(entry.path, SYMTYPE, now_s=now_s, linkname=entry.target)
        case File():
            mode = {"mode": PROGRAM_MODE} if entry.is_executable else {}
            yield _head(entry.path, REGTYPE, now_s=now_s, size=entry.size_bytes, **mode)
            yield from _content(entry, contents(entry.sha256))
            yield NUL * (-entry.size_bytes % BLOCKSIZE)


def _content(file: File, source: BinaryIO) -> Iterator[bytes]:
    hasher = hashlib.sha256()
    with source:
        while piece := source.read(PIECE_BYTES):
            hasher.update(piece)
            yield piece
    if hasher.hexdigest() != file.sha256:
        raise UnavailableError(f"the content of {file.path!r} is damaged", "ship the folder again")


def _head(path: str, kind: bytes, *, now_s: float, **more: int | str) -> bytes:
    member = TarInfo(path)
    fields = {"type": kind, "mode": MODES[kind], "mtime": int(now_s), **more}
    for name, value in fields.items():
        setattr(member, name, value)
    return member.tobuf(PAX_FORMAT)
