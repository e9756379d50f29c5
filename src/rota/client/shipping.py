"""Ship a directory to the daemon: build its manifest, then upload the blobs that the daemon lacks.

`rota submit --ship DIR` and programs use it. The directory is read with the rights of the caller
and never changed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from rota.client.http import Http, loaded
from rota.client.ignore_file import DEFAULT_IGNORE, IgnoreRules, ignore_of
from rota.errors import RotaError, UnavailableError, UserError
from rota.wire import manifest as bounds
from rota.wire.manifest import ManifestFile, ManifestLink, SnapshotManifest, location

CHUNK_BYTES = 1024 * 1024
EXCLUDE_IT = "exclude it in .rotaignore"


class ShippingApi(Protocol):
    """The daemon's interface for uploads, for the connected user."""

    def missing(self, manifest: SnapshotManifest) -> list[str]:
        """Return the hashes of the blobs that this user has not uploaded yet."""
        ...

    def put_blob(self, sha256: str, file: BinaryIO) -> None:
        """Upload one blob, from the beginning of the file. The daemon checks its hash."""
        ...

    def finish(self, manifest: SnapshotManifest) -> str:
        """Create a snapshot after all blobs are uploaded; return its id."""
        ...


def ship(folder: Path, api: ShippingApi, *, ignore: Iterable[str] = DEFAULT_IGNORE) -> str:
    """Store the present content of a directory at the daemon; return the snapshot id."""
    manifest = scan(folder, ignore)
    return deliver(manifest, api, send=lambda file: _send(folder, file, api=api))


def deliver(
    manifest: SnapshotManifest, api: ShippingApi, *, send: Callable[[ManifestFile], None]
) -> str:
    """Upload the missing blobs of a manifest with `send`; return the snapshot id."""
    files = {each.sha256: each for each in manifest.files}
    for sha256 in dict.fromkeys(api.missing(manifest)):
        if sha256 not in files:
            raise UnavailableError(f"daemon requested an unknown blob: {sha256!r}")
        send(files[sha256])
    snapshot_id = api.finish(manifest)
    if snapshot_id != manifest.snapshot_id:
        raise UnavailableError(f"daemon returned a different snapshot id: {snapshot_id!r}")
    return snapshot_id


def scan(folder: Path, ignore: Iterable[str] = DEFAULT_IGNORE) -> SnapshotManifest:
    """Return the manifest of a directory, without ignored files (`ignore` and `.rotaignore`)."""
    with _os_errors_name(str(folder)):
        is_folder = folder.is_dir()
    if not is_folder:
        raise UserError(f"{str(folder)!r} is not a directory", "name a directory to ship")
    links: list[ManifestLink] = []
    sizes: dict[str, int] = {}
    for path, status in _walk(folder, ignore_of(folder, ignore)):
        if stat.S_ISLNK(status.st_mode):
            links.append(ManifestLink(path, _target(folder, path)))
        else:
            sizes[path] = status.st_size
            _check_size(path, status.st_size)
        if len(sizes) + len(links) > bounds.MAX_FILES:
            raise bounds.too_many_files()
    if not sizes and not links:
        raise UserError(
            f"{str(folder)!r} has no files to ship", "name a directory that contains files"
        )
    # Check everything else before hashing, which takes most of the time.
    SnapshotManifest.of([*links, *(_unhashed(path) for path in sizes)])
    if sum(sizes.values()) > bounds.MAX_TOTAL_BYTES:
        raise bounds.too_large(sum(sizes.values()))
    manifest = SnapshotManifest.of([*links, *(_hashed(folder, path) for path in sizes)])
    manifest.to_json()
    return manifest


def _walk(folder: Path, ignore: IgnoreRules) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file and link that is not ignored. Links to directories are not followed."""
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
    with _os_errors_name(parent or "."), os.scandir(folder / parent) as children:
        for each in children:
            yield f"{parent}{each.name}", each.stat(follow_symlinks=False)


def _check_kind(path: str, mode: int) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        kinds = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a named pipe"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise UserError(f"{location(path)}: cannot ship {kind}", EXCLUDE_IT)


def _check_size(path: str, n_bytes: int) -> None:
    if n_bytes > bounds.MAX_FILE_BYTES:
        raise bounds.too_large_file(path, n_bytes)


def _target(folder: Path, path: str) -> str:
    with _os_errors_name(path):
        return os.readlink(folder / path)  # noqa: PTH115 - pathlib would normalise the target


def _unhashed(path: str) -> ManifestFile:
    return ManifestFile(path, "0" * 64, size_bytes=0, is_executable=False)


def _hashed(folder: Path, path: str) -> ManifestFile:
    with _opened(folder, path) as file, _os_errors_name(path):
        before = os.fstat(file.fileno())
        hasher, n_bytes = hashlib.sha256(), 0
        while n_bytes <= before.st_size and (chunk := file.read(CHUNK_BYTES)):
            hasher.update(chunk)
            n_bytes += len(chunk)
        after = os.fstat(file.fileno())
    if n_bytes != before.st_size or _version(before) != _version(after):
        raise _changed(path)
    is_executable = bool(before.st_mode & stat.S_IXUSR)
    return ManifestFile(path, hasher.hexdigest(), size_bytes=n_bytes, is_executable=is_executable)


def _send(folder: Path, listed: ManifestFile, *, api: ShippingApi) -> None:
    """Upload one file. If the daemon rejects it because the file changed, raise that error."""
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
    """Open a regular file. Never follows a link and never blocks on a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _os_errors_name(path):
        file = os.fdopen(os.open(folder / path, flags), "rb", buffering=0)
    try:
        _check_kind(path, os.fstat(file.fileno()).st_mode)
    except UserError:
        file.close()
        raise
    return file


@contextmanager
def _os_errors_name(path: str) -> Generator[None]:
    """Turn `OSError` into `UserError` with the path."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _changed(path) from error
    except PermissionError as error:
        hint = f"make it readable for you, or {EXCLUDE_IT}"
        raise UserError(f"{location(path)}: permission denied", hint) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{location(path)}: {reason}", f"fix it, or {EXCLUDE_IT}") from error


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _changed(path: str) -> UserError:
    hint = f"ship again when no program writes to it, or {EXCLUDE_IT}"
    return UserError(f"{location(path)}: changed or disappeared while it was read", hint)


class Uploads:
    """`ShippingApi` over HTTP, and downloads of snapshots."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def missing(self, manifest: SnapshotManifest) -> list[str]:
        answer = self._http.send("POST", "/snapshots/missing", content=manifest.to_json())
        return loaded(list[str], answer, field="missing")

    def put_blob(self, sha256: str, file: BinaryIO) -> None:
        self._http.send("PUT", f"/blobs/{sha256}", content=file)

    def finish(self, manifest: SnapshotManifest) -> str:
        answer = self._http.send("POST", "/snapshots", content=manifest.to_json())
        return loaded(str, answer, field="id")

    def manifest(self, snapshot_id: str) -> bytes:
        """Download the manifest of a snapshot as JSON; the caller validates it, also its size."""
        found = bytearray()
        for chunk in self._http.bytes(f"/snapshots/{snapshot_id}", {}):
            found += chunk
            if len(found) > bounds.MAX_JSON_BYTES:
                break
        return bytes(found)

    def blob(self, sha256: str) -> Iterator[bytes]:
        return self._http.bytes(f"/blobs/{sha256}", {})
