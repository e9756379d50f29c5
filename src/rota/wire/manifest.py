"""The manifest of a snapshot: the list of files of a shipped folder.

The client creates the manifest, the daemon unpacks it. The daemon cannot trust the client, so a
`SnapshotManifest` exists only if it is safe to unpack: every path and link stays inside the
directory, no path occurs twice or is both a file and a directory, and all sizes are bounded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

from rota.errors import InputError, InputLocation
from rota.wire.symlinks import check_links

VERSION = 1
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

MAX_FILES = 20_000
"""Links count as files."""
MAX_FOLDERS = 20_000
MAX_FILE_BYTES = 256 * MIB
MAX_TOTAL_BYTES = GIB
MAX_NAME_BYTES = 255
"""The limit of Linux."""
MAX_PATH_BYTES = 1024
"""Also for the target of a link. Well below the 4096 of Linux, to leave space for a prefix."""
MAX_DEPTH = 64
"""Names in a path. To unpack a path, that many directories are open at once."""
MAX_JSON_VALUES = 500_000
"""Separators in the JSON, more than `MAX_FILES` have. Those in paths count, too."""
MAX_JSON_BYTES = 8 * MIB
"""Enough for MAX_FILES with paths of 200 bytes each."""

SHA256 = re.compile(r"[0-9a-f]{64}")
EXCLUDE = "exclude files that the job does not need in .rotaignore"
RENAME = "rename it, or exclude it in .rotaignore"
_MAX_SHOWN = 200
_FOLDER = InputLocation("the directory to ship")
_MANIFEST = "manifest"


@dataclass(frozen=True, slots=True)
class ManifestFile:
    path: str
    """Relative to the directory, with `/` between names."""
    sha256: str
    size_bytes: int
    is_executable: bool


@dataclass(frozen=True, slots=True)
class ManifestLink:
    """A symbolic link to a path inside the directory; the target need not exist."""

    path: str
    target: str


ManifestEntry = ManifestFile | ManifestLink


@dataclass(frozen=True)
class SnapshotManifest:
    """Files and links, sorted by path. Directories are implied; empty ones are not stored.

    Raises `InputError` if any entry is invalid.
    """

    entries: tuple[ManifestEntry, ...]

    def __post_init__(self) -> None:
        if len(self.entries) > MAX_FILES:
            raise too_many_files()
        _check_paths(self.entries)
        paths = [each.path for each in self.entries]
        _check_order(paths)
        if len(self.folders) > MAX_FOLDERS:
            raise too_many_folders()
        _check_sizes(self.files)
        check_links(
            {each.path: each.target for each in self.entries if isinstance(each, ManifestLink)}
        )

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry]) -> SnapshotManifest:
        """Build a manifest from entries in any order."""
        return cls(tuple(sorted(entries, key=lambda each: each.path)))

    @classmethod
    def of_json(cls, text: bytes) -> SnapshotManifest:
        """Parse and validate untrusted JSON."""
        if len(text) > MAX_JSON_BYTES:
            raise _too_long()
        if text.count(b",") + text.count(b":") > MAX_JSON_VALUES:
            raise too_many_files()
        return cls(tuple(_entries(text)))

    def to_json(self) -> bytes:
        """Return the canonical JSON. Its hash is the snapshot id."""
        value = {"version": VERSION, "entries": [_value(each) for each in self.entries]}
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        if len(text) > MAX_JSON_BYTES:
            raise _too_long()
        return text

    @cached_property
    def snapshot_id(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def files(self) -> list[ManifestFile]:
        return [each for each in self.entries if isinstance(each, ManifestFile)]

    @property
    def blobs(self) -> dict[str, int]:
        """Blob hash -> size. Files with the same content share one blob."""
        return {each.sha256: each.size_bytes for each in self.files}

    @cached_property
    def folders(self) -> frozenset[str]:
        """All directories that the paths imply, without the top."""
        return _folders([each.path for each in self.entries])


def too_many_files() -> InputError:
    return InputError(_FOLDER, f"more than {MAX_FILES:,} files", EXCLUDE)


def too_many_folders() -> InputError:
    return InputError(_FOLDER, f"more than {MAX_FOLDERS:,} directories", EXCLUDE)


def too_large(n_bytes: int) -> InputError:
    what = f"files have {n_bytes:,} bytes in total, the limit is {MAX_TOTAL_BYTES:,}"
    return InputError(_FOLDER, what, EXCLUDE)


def too_large_file(path: str, n_bytes: int) -> InputError:
    what = f"the file has {n_bytes:,} bytes, the limit is {MAX_FILE_BYTES:,}"
    hint = "exclude it in .rotaignore, and mount large files into the job"
    return InputError(location(path), what, hint)


def location(path: str) -> InputLocation:
    """Return the location for an error message; control characters are escaped for terminals."""
    return InputLocation(repr(path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}..."))


# -- JSON -------------------------------------------------------------------------------------


def _value(entry: ManifestEntry) -> dict[str, str | int | bool]:
    match entry:
        case ManifestFile():
            return {
                "path": entry.path,
                "sha256": entry.sha256,
                "size_bytes": entry.size_bytes,
                "is_executable": entry.is_executable,
            }
        case ManifestLink():
            return {"path": entry.path, "target": entry.target}


def _entries(text: bytes) -> Iterator[ManifestEntry]:
    try:
        value: object = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(InputLocation(_MANIFEST), f"not JSON: {error}") from error
    fields = _fields(value, where=InputLocation(_MANIFEST))
    if set(fields) != {"version", "entries"}:
        raise InputError(
            InputLocation(_MANIFEST), "must have exactly the fields 'version' and 'entries'"
        )
    version, entries = fields["version"], fields["entries"]
    if type(version) is not int or version != VERSION:
        where = InputLocation(_MANIFEST, field="version")
        hint = "use the same version of rota for the client and the daemon"
        raise InputError(where, f"must be {VERSION}", hint)
    if not isinstance(entries, list):
        raise InputError(InputLocation(_MANIFEST, field="entries"), "must be a list")
    for number, each in enumerate(cast("list[object]", entries)):
        if number >= MAX_FILES:
            raise too_many_files()
        yield _entry(each, where=InputLocation(_MANIFEST, field=f"entries[{number}]"))


def _entry(value: object, *, where: InputLocation) -> ManifestEntry:
    fields = _fields(value, where=where)
    match fields:
        case {"path": str(path), "target": str(target)} if len(fields) == 2:
            return ManifestLink(path, target)
        case {
            "path": str(path),
            "sha256": str(sha256),
            "size_bytes": int(size),
            "is_executable": bool(is_executable),
        } if len(fields) == 4 and not isinstance(size, bool):
            return ManifestFile(path, sha256, size_bytes=size, is_executable=is_executable)
        case _:
            what = "must be a file (path, sha256, size_bytes, is_executable) or a link"
            raise InputError(where, f"{what} (path, target)")


def _fields(value: object, *, where: InputLocation) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InputError(where, "must be an object")
    return cast("dict[str, object]", value)


def _too_long() -> InputError:
    what = f"the list of files is larger than {MAX_JSON_BYTES // MIB} MiB"
    return InputError(_FOLDER, what, EXCLUDE)


# -- checks -----------------------------------------------------------------------------------


def _check_paths(entries: Iterable[ManifestEntry]) -> None:
    for each in entries:
        _check_text(each.path, path=each.path)
        names = each.path.split("/")
        if not {"", ".", ".."}.isdisjoint(names):
            what = "must be a relative path without empty names, '.' and '..'"
            raise InputError(location(each.path), what)
        if len(names) > MAX_DEPTH:
            what = f"the path has more than {MAX_DEPTH} names"
            raise InputError(location(each.path), what, "move it up, or exclude it in .rotaignore")
        if max(len(name.encode()) for name in names) > MAX_NAME_BYTES:
            what = f"a name in the path has more than {MAX_NAME_BYTES} bytes"
            raise InputError(location(each.path), what, RENAME)
        if isinstance(each, ManifestLink):
            _check_text(each.target, path=each.path)


def _check_text(text: str, *, path: str) -> None:
    """Check a path or the target of a link."""
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        what = "the path or the link's target is not UTF-8"
        raise InputError(location(path), what, RENAME) from error
    if not text or "\0" in text:
        raise InputError(location(path), "a path must not be empty or contain a zero byte")
    if n_bytes > MAX_PATH_BYTES:
        what = f"the path has more than {MAX_PATH_BYTES:,} bytes"
        raise InputError(location(path), what, "shorten it, or exclude it in .rotaignore")


def _check_order(paths: list[str]) -> None:
    for before, after in pairwise(paths):
        if before == after:
            raise InputError(location(after), "duplicate path")
        if before > after:
            raise InputError(location(after), f"must come before {location(before)}")


def _folders(paths: list[str]) -> frozenset[str]:
    taken = set(paths)
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            if folder in taken:
                raise InputError(location(path), f"{location(folder)} is not a directory")
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(folders)


def _check_sizes(files: Iterable[ManifestFile]) -> None:
    sizes: dict[str, int] = {}
    total = 0
    for each in files:
        if not SHA256.fullmatch(each.sha256):
            raise InputError(location(each.path), "sha256 must be 64 characters of 0-9 a-f")
        if each.size_bytes < 0:
            raise InputError(location(each.path), "the size must not be negative")
        if each.size_bytes > MAX_FILE_BYTES:
            raise too_large_file(each.path, each.size_bytes)
        if sizes.setdefault(each.sha256, each.size_bytes) != each.size_bytes:
            what = "another file with the same sha256 has a different size"
            raise InputError(location(each.path), what)
        total += each.size_bytes
    if total > MAX_TOTAL_BYTES:
        raise too_large(total)
