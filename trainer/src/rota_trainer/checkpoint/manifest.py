"""The manifest of a checkpoint: its owner, its position, and the size and hash of each file.

The manifest is written last and has a checksum of its own. A checkpoint is corrupt if its manifest
is missing or invalid, or if its files differ from the listed ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota_trainer.progress.position import CheckpointSource, Position

NAME = "rota.json"
FORMAT = 1
CHUNK_BYTES = 1 << 20
LONGEST_MANIFEST = 64 << 20


class CorruptCheckpointError(Exception):
    """The checkpoint must not be loaded; the message says why."""


@dataclass(frozen=True)
class CheckpointManifest:
    owner: CheckpointSource
    position: Position
    files: dict[str, str]
    """File name -> `SIZE:SHA256`."""
    library: str


def seal(folder: Path, *, owner: CheckpointSource, position: Position, library: str) -> None:
    """Flush every file of the folder to disk, then write the manifest. Raises OSError."""
    files = {name: _digest(folder / name, sync=True) for name in _names(folder)}
    if not files:
        raise OSError(f"the save function wrote nothing to {folder}")
    body: dict[str, Any] = {
        "format": FORMAT,
        "library": library,
        "owner": owner._asdict(),
        "position": position._asdict(),
        "files": files,
    }
    written = json.dumps({"sum": _checksum(body), "checkpoint": body}, sort_keys=True)
    with (folder / NAME).open("x", encoding="utf-8") as file:
        file.write(written)
        file.flush()
        os.fsync(file.fileno())
    for path, _, _ in os.walk(folder):
        sync_folder(Path(path))


def read(folder: Path) -> CheckpointManifest:
    """Read the manifest; the files are not checked. Raises CorruptCheckpointError."""
    try:
        with _open_regular(folder / NAME) as file:
            raw = json.loads(file.read(LONGEST_MANIFEST))
        body = raw["checkpoint"]
        if raw["sum"] != _checksum(body):
            raise CorruptCheckpointError("the manifest was changed")
        if body["format"] > FORMAT:
            raise CorruptCheckpointError(
                f"written by a newer version of rota-trainer ({body['library']})"
            )
        position, files = Position(**body["position"]), dict(body["files"])
        if type(position.epoch) is not int or type(position.step) is not int or min(position) < 0:
            raise CorruptCheckpointError("the position in the manifest is invalid")
        return CheckpointManifest(
            CheckpointSource(**body["owner"]), position, files, body["library"]
        )
    except FileNotFoundError:
        raise CorruptCheckpointError("the manifest is missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"the manifest cannot be read ({type(error).__name__})"
        ) from None


def check(folder: Path, manifest: CheckpointManifest) -> None:
    """Read every file. Raises CorruptCheckpointError if one is missing, added or changed."""
    try:
        found = {name: _digest(folder / name, sync=False) for name in _names(folder)}
    except OSError as error:
        raise CorruptCheckpointError(f"a file cannot be read ({error})") from None
    for name in sorted(found.keys() | manifest.files.keys()):
        if name not in found:
            raise CorruptCheckpointError(f"{name} is missing")
        if name not in manifest.files:
            raise CorruptCheckpointError(f"{name} is not in the manifest")
        if found[name] != manifest.files[name]:
            raise CorruptCheckpointError(f"{name} was changed")


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(folder: Path) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        for name in names:
            relative = (Path(path) / name).relative_to(folder).as_posix()
            if relative != NAME:
                yield relative


def _digest(path: Path, *, sync: bool) -> str:
    """The size and hash of a file, as `SIZE:SHA256`."""
    digest, size = hashlib.sha256(), 0
    with _open_regular(path) as file:
        if sync:
            os.fsync(file.fileno())
        while True:
            chunk = file.read(CHUNK_BYTES)
            if not chunk:
                return f"{size}:{digest.hexdigest()}"
            digest.update(chunk)
            size += len(chunk)


def _open_regular(path: Path) -> Any:
    """Open a regular file. Anything else is refused: opening a named pipe could block forever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
