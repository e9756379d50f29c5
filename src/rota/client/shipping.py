"""Ships a folder to the daemon: lists what it holds, then sends what the daemon lacks.

Called by `rota submit --ship DIR` and by programs. The folder is read with the rights of whoever
runs this, and nothing in it is changed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from rota.client.ignoring import DEFAULT_IGNORE, Ignore, ignore_of
from rota.errors import RotaError, UnavailableError, UserError
from rota.wire import manifest as bounds
from rota.wire.manifest import File, Link, Manifest, place

CHUNK_BYTES = 1024 * 1024
LEAVE_IT_OUT = "leave it out by a line in .rotaignore"


class ShippingApi(Protocol):
    """What shipping asks of a daemon, for the user who is connected to it."""

    def missing(self, manifest: Manifest) -> list[str]:
        """The hashes of the contents that this user has not sent yet."""
        ...

    def put_blob(self, sha256: str, file: BinaryIO) -> None:
        """Send one content, from the file's beginning. The daemon checks its hash."""
        ...

    def finish(self, manifest: Manifest) -> str:
        """Make a snapshot of contents that are all there: its id, for a job to name."""
        ...


def ship(folder: Path, api: ShippingApi, *, ignore: Iterable[str] = DEFAULT_IGNORE) -> str:
    """Have the daemon hold the folder as it is now; the id of its snapshot."""
    manifest = scan(folder, ignore)
    return deliver(manifest, api, send=lambda file: _send(folder, file, api=api))


def deliver(manifest: Manifest, api: ShippingApi, *, send: Callable[[File], None]) -> str:
    """Send what the daemon lacks of it; the id of the snapshot."""
    files = {each.sha256: each for each in manifest.files}
    for sha256 in dict.fromkeys(api.missing(manifest)):
        if sha256 not in files:
            raise UnavailableError(f"the daemon asks for a content that is not shipped: {sha256!r}")
        send(files[sha256])
    snapshot_id = api.finish(manifest)
    if snapshot_id != manifest.snapshot_id:
        raise UnavailableError(f"the daemon made another snapshot than was sent: {snapshot_id!r}")
    return snapshot_id


def scan(folder: Path, ignore: Iterable[str] = DEFAULT_IGNORE) -> Manifest:
    """List a folder, without what these patterns and its `.rotaignore` leave out."""
    with _named(str(folder)):
        is_folder = folder.is_dir()
    if not is_folder:
        raise UserError(f"{str(folder)!r} is not a folder", "name a folder to ship")
    links: list[Link] = []
    sizes: dict[str, int] = {}
    for path, status in _walk(folder, ignore_of(folder, ignore)):
        if stat.S_ISLNK(status.st_mode):
            links.append(Link(path, _target(folder, path)))
        else:
            sizes[path] = status.st_size
            _check_size(path, status.st_size)
        if len(sizes) + len(links) > bounds.MAX_FILES:
            raise bounds.too_many_files()
    if not sizes and not links:
        raise UserError(f"{str(folder)!r} holds nothing to ship", "name a folder with files in it")
    # Hashing takes the time: it begins only when nothing else can be refused.
    Manifest.of([*links, *(_unhashed(path) for path in sizes)])
    if sum(sizes.values()) > bounds.MAX_TOTAL_BYTES:
        raise bounds.too_large(sum(sizes.values()))
    manifest = Manifest.of([*links, *(_hashed(folder, path) for path in sizes)])
    manifest.to_json()
    return manifest


# -- looking ----------------------------------------------------------------------------------


def _walk(folder: Path, ignore: Ignore) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and link that is not left out. Links to folders are not entered."""
    ahead = [""]
    n_folders = 0
    while ahead:
        parent = ahead.pop()
        n_folders += 1
        if n_folders > bounds.MAX_FOLDERS:
            raise bounds.too_many_folders()
        for path, status in _children(folder, parent):
            is_folder = stat.S_ISDIR(status.st_mode)
            if ignore.skips(path, is_folder=is_folder):
                continue
            if is_folder:
                ahead.append(f"{path}/")
            else:
                _check_kind(path, status.st_mode)
                yield path, status


def _children(folder: Path, parent: str) -> Iterator[tuple[str, os.stat_result]]:
    with _named(parent or "."), os.scandir(folder / parent) as children:
        for each in children:
            yield f"{parent}{each.name}", each.stat(follow_symlinks=False)


def _check_kind(path: str, mode: int) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        kinds = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a named pipe"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise UserError(f"{place(path)}: it is {kind}, not a file", LEAVE_IT_OUT)


def _check_size(path: str, n_bytes: int) -> None:
    if n_bytes > bounds.MAX_FILE_BYTES:
        raise bounds.too_large_file(path, n_bytes)


def _target(folder: Path, path: str) -> str:
    with _named(path):
        return os.readlink(folder / path)  # noqa: PTH115 - pathlib would tidy the target


def _unhashed(path: str) -> File:
    return File(path, "0" * 64, size_bytes=0, is_executable=False)


# -- reading ----------------------------------------------------------------------------------


def _hashed(folder: Path, path: str) -> File:
    with _opened(folder, path) as file, _named(path):
        before = os.fstat(file.fileno())
        hasher, n_bytes = hashlib.sha256(), 0
        while n_bytes <= before.st_size and (chunk := file.read(CHUNK_BYTES)):
            hasher.update(chunk)
            n_bytes += len(chunk)
        after = os.fstat(file.fileno())
    if n_bytes != before.st_size or _version(before) != _version(after):
        raise _changed(path)
    is_executable = bool(before.st_mode & stat.S_IXUSR)
    return File(path, hasher.hexdigest(), size_bytes=n_bytes, is_executable=is_executable)


def _send(folder: Path, listed: File, *, api: ShippingApi) -> None:
    """The daemon refuses what does not have its hash; say why, if the file is to blame."""
    with _opened(folder, listed.path) as file:
        if os.fstat(file.fileno()).st_size != listed.size_bytes:
            raise _changed(listed.path)
        try:
            api.put_blob(listed.sha256, file)
        except RotaError as error:
            if _hashed(folder, listed.path) != listed:
                raise _changed(listed.path) from error
            raise


def _opened(folder: Path, path: str) -> BinaryIO:
    """A regular file, never one that a link leads to or that blocks its reader."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _named(path):
        file = os.fdopen(os.open(folder / path, flags), "rb", buffering=0)
    try:
        _check_kind(path, os.fstat(file.fileno()).st_mode)
    except UserError:
        file.close()
        raise
    return file


@contextmanager
def _named(path: str) -> Generator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _changed(path) from error
    except PermissionError as error:
        hint = f"make it readable for you, or {LEAVE_IT_OUT}"
        raise UserError(f"{place(path)}: you may not read it", hint) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{place(path)}: {reason}", f"mend it, or {LEAVE_IT_OUT}") from error


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _changed(path: str) -> UserError:
    hint = f"ship again when nothing writes to it, or {LEAVE_IT_OUT}"
    return UserError(f"{place(path)}: it changed, or went, while it was read", hint)
