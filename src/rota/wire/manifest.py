"""What a shipped folder holds: the list of its files that a client and the daemon agree on.

The client makes a manifest of a folder, the daemon unpacks one. It may come from anybody, so that
a `Manifest` exists only if it is safe to unpack: every path and every link stays inside the folder,
nothing is there twice or in the way of something else, and all of it is bounded.
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

from rota.errors import InputError, Where
from rota.wire.links import check_links

VERSION = 1
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

MAX_FILES = 20_000
"""Links are counted as files."""
MAX_FOLDERS = 20_000
MAX_FILE_BYTES = 256 * MIB
MAX_TOTAL_BYTES = GIB
MAX_NAME_BYTES = 255
"""What Linux allows."""
MAX_PATH_BYTES = 1024
"""Also of a link's target. Far enough below the 4096 of Linux to be unpacked anywhere."""
MAX_DEPTH = 64
"""Names in a path: whoever unpacks it holds that many folders open."""
MAX_JSON_BYTES = 8 * MIB
"""Enough for the most files with paths of 200 bytes each."""

SHA256 = re.compile(r"[0-9a-f]{64}")
LEAVE_OUT = "leave out what the job does not need, by lines in .rotaignore"


@dataclass(frozen=True, slots=True)
class File:
    path: str
    """Relative to the folder, with `/` between names."""
    sha256: str
    size_bytes: int
    is_executable: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to somewhere in the folder, whether or not something is there."""

    path: str
    target: str


Entry = File | Link


@dataclass(frozen=True)
class Manifest:
    """Files and links in the order of their paths. Folders are implied; empty ones do not exist.

    Raises `InputError` when anything is wrong with the entries.
    """

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if len(self.entries) > MAX_FILES:
            raise too_many_files()
        _check_paths(self.entries)
        paths = [each.path for each in self.entries]
        _check_order(paths)
        if len(self.folders) > MAX_FOLDERS:
            raise too_many_folders()
        _check_sizes(self.files)
        check_links({each.path: each.target for each in self.entries if isinstance(each, Link)})

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Manifest:
        """From entries in any order."""
        return cls(tuple(sorted(entries, key=lambda each: each.path)))

    @classmethod
    def of_json(cls, text: bytes) -> Manifest:
        """From what anybody may have sent."""
        if len(text) > MAX_JSON_BYTES:
            raise _too_long()
        return cls(tuple(_entries(text)))

    def to_json(self) -> bytes:
        """The one text that says the same: its hash names the snapshot."""
        value = {"version": VERSION, "entries": [_value(each) for each in self.entries]}
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        if len(text) > MAX_JSON_BYTES:
            raise _too_long()
        return text

    @cached_property
    def snapshot_id(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def files(self) -> list[File]:
        return [each for each in self.entries if isinstance(each, File)]

    @property
    def blobs(self) -> dict[str, int]:
        """The size of every content, by its hash. Files of the same content share one."""
        return {each.sha256: each.size_bytes for each in self.files}

    @cached_property
    def folders(self) -> frozenset[str]:
        """All that its paths imply, except for the top."""
        return _folders([each.path for each in self.entries])


def too_many_files() -> InputError:
    return InputError(_FOLDER, f"it holds more than {MAX_FILES:,} files", LEAVE_OUT)


def too_many_folders() -> InputError:
    return InputError(_FOLDER, f"it holds more than {MAX_FOLDERS:,} folders", LEAVE_OUT)


def too_large(n_bytes: int) -> InputError:
    words = f"its files have {n_bytes:,} bytes in all, at most {MAX_TOTAL_BYTES:,} can be shipped"
    return InputError(_FOLDER, words, LEAVE_OUT)


def too_large_file(path: str, n_bytes: int) -> InputError:
    words = f"it has {n_bytes:,} bytes, a file can have {MAX_FILE_BYTES:,}"
    hint = "leave it out by a line in .rotaignore, and mount large files into the job"
    return InputError(place(path), words, hint)


def place(path: str) -> Where:
    """Where a mistake is, fit for a terminal whatever characters the path is made of."""
    return Where(repr(path if len(path) <= _SHOWN else f"{path[:_SHOWN]}..."))


_SHOWN = 200
_FOLDER = Where("the folder to ship")
_MANIFEST = "manifest"

# -- JSON -------------------------------------------------------------------------------------


def _value(entry: Entry) -> dict[str, str | int | bool]:
    match entry:
        case File():
            return {
                "path": entry.path,
                "sha256": entry.sha256,
                "size_bytes": entry.size_bytes,
                "is_executable": entry.is_executable,
            }
        case Link():
            return {"path": entry.path, "target": entry.target}


def _entries(text: bytes) -> Iterator[Entry]:
    try:
        value: object = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(Where(_MANIFEST), f"not JSON: {error}") from error
    fields = _fields(value, where=Where(_MANIFEST))
    if set(fields) != {"version", "entries"}:
        raise InputError(Where(_MANIFEST), "must have the fields 'version' and 'entries' alone")
    version, entries = fields["version"], fields["entries"]
    if type(version) is not int or version != VERSION:
        where = Where(_MANIFEST, field="version")
        raise InputError(where, f"must be {VERSION}", "use the same version of rota on both sides")
    if not isinstance(entries, list):
        raise InputError(Where(_MANIFEST, field="entries"), "must be a list")
    for number, each in enumerate(cast("list[object]", entries)):
        if number >= MAX_FILES:
            raise too_many_files()
        yield _entry(each, where=Where(_MANIFEST, field=f"entries[{number}]"))


def _entry(value: object, *, where: Where) -> Entry:
    fields = _fields(value, where=where)
    match fields:
        case {"path": str(path), "target": str(target)} if len(fields) == 2:
            return Link(path, target)
        case {
            "path": str(path),
            "sha256": str(sha256),
            "size_bytes": int(size),
            "is_executable": bool(is_executable),
        } if len(fields) == 4 and not isinstance(size, bool):
            return File(path, sha256, size_bytes=size, is_executable=is_executable)
        case _:
            words = "must be a file (path, sha256, size_bytes, is_executable) or a link"
            raise InputError(where, f"{words} (path, target)")


def _fields(value: object, *, where: Where) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InputError(where, "must be an object")
    return cast("dict[str, object]", value)


def _too_long() -> InputError:
    words = f"the list of its files is longer than {MAX_JSON_BYTES // MIB} MiB"
    return InputError(_FOLDER, words, LEAVE_OUT)


# -- checks -----------------------------------------------------------------------------------


def _check_paths(entries: Iterable[Entry]) -> None:
    for each in entries:
        _check_text(each.path, path=each.path)
        names = each.path.split("/")
        if not {"", ".", ".."}.isdisjoint(names):
            words = "must be a path from the folder down, without empty names, '.' and '..'"
            raise InputError(place(each.path), words)
        if len(names) > MAX_DEPTH:
            hint = "move it up, or leave it out by a line in .rotaignore"
            raise InputError(place(each.path), f"a path can have {MAX_DEPTH} names", hint)
        if max(len(name.encode()) for name in names) > MAX_NAME_BYTES:
            words = f"a name can have {MAX_NAME_BYTES} bytes"
            raise InputError(place(each.path), words, "rename it, or leave it out by .rotaignore")
        if isinstance(each, Link):
            _check_text(each.target, path=each.path)


def _check_text(text: str, *, path: str) -> None:
    """What any path has to be, also that of a link's target."""
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        hint = "rename it, or leave it out by .rotaignore"
        raise InputError(place(path), "it, or its target, is not UTF-8", hint) from error
    if not text or "\0" in text:
        raise InputError(place(path), "a path must not be empty or have a zero byte")
    if n_bytes > MAX_PATH_BYTES:
        hint = "shorten it, or leave it out by .rotaignore"
        raise InputError(place(path), f"a path can have {MAX_PATH_BYTES:,} bytes", hint)


def _check_order(paths: list[str]) -> None:
    for before, after in pairwise(paths):
        if before == after:
            raise InputError(place(after), "it is there twice")
        if before > after:
            raise InputError(place(after), f"must come before {place(before)}")


def _folders(paths: list[str]) -> frozenset[str]:
    taken = set(paths)
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            if folder in taken:
                words = f"it lies in {place(folder)}, which is no folder"
                raise InputError(place(path), words)
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(folders)


def _check_sizes(files: Iterable[File]) -> None:
    sizes: dict[str, int] = {}
    total = 0
    for each in files:
        if not SHA256.fullmatch(each.sha256):
            raise InputError(place(each.path), "its sha256 must be 64 of the characters 0-9 a-f")
        if each.size_bytes < 0:
            raise InputError(place(each.path), "its size must not be negative")
        if each.size_bytes > MAX_FILE_BYTES:
            raise too_large_file(each.path, each.size_bytes)
        if sizes.setdefault(each.sha256, each.size_bytes) != each.size_bytes:
            words = "another file of the same sha256 has another size"
            raise InputError(place(each.path), words)
        total += each.size_bytes
    if total > MAX_TOTAL_BYTES:
        raise too_large(total)
