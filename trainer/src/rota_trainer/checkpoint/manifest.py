"""What a checkpoint says about itself: whose it is, how far it is, and what each file holds.

The manifest is written last, and has a checksum of its own: a checkpoint without a sound one, or
with any file other than listed, is damaged.
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

from rota_trainer.position import Owner, Position

NAME = "rota.json"
FORMAT = 1
CHUNK_BYTES = 1 << 20
LONGEST_MANIFEST = 64 << 20


class DamageError(Exception):
    """This checkpoint cannot be trusted; the words say why."""


@dataclass(frozen=True)
class Manifest:
    owner: Owner
    position: Position
    files: dict[str, str]
    """For each file its size and hash, as one word."""
    library: str


def seal(folder: Path, *, owner: Owner, position: Position, library: str) -> None:
    """Bring every file of the folder to the disk, then the manifest. Raises OSError."""
    files = {name: _digest(folder / name, sync=True) for name in _names(folder)}
    if not files:
        raise OSError(f"nothing was written to {folder}")
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


def read(folder: Path) -> Manifest:
    """The manifest, without a look at the files. Raises DamageError."""
    try:
        with _open_regular(folder / NAME) as file:
            raw = json.loads(file.read(LONGEST_MANIFEST))
        body = raw["checkpoint"]
        if raw["sum"] != _checksum(body):
            raise DamageError("its manifest was changed")
        if body["format"] > FORMAT:
            raise DamageError(f"it was written by a newer library ({body['library']})")
        position, files = Position(**body["position"]), dict(body["files"])
        if type(position.epoch) is not int or type(position.step) is not int or min(position) < 0:
            raise DamageError("its position makes no sense")
        return Manifest(Owner(**body["owner"]), position, files, body["library"])
    except FileNotFoundError:
        raise DamageError("it has no manifest") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamageError(f"its manifest cannot be read ({type(error).__name__})") from None


def check(folder: Path, manifest: Manifest) -> None:
    """Read every file. Raises DamageError if one is missing, added or different."""
    try:
        found = {name: _digest(folder / name, sync=False) for name in _names(folder)}
    except OSError as error:
        raise DamageError(f"it cannot be read ({error})") from None
    for name in sorted(found.keys() | manifest.files.keys()):
        if name not in found:
            raise DamageError(f"{name} is missing")
        if name not in manifest.files:
            raise DamageError(f"{name} does not belong to it")
        if found[name] != manifest.files[name]:
            raise DamageError(f"{name} is not what was written")


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
    """Size and hash of a file, as one word."""
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
    """A pipe under the name of a file would be waited for for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a plain file")
    return os.fdopen(descriptor, "rb")


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
