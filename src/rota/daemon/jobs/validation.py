"""Checks the fields of a request: sizes, names, paths, mounts, ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import compress
from operator import attrgetter
from typing import Any, cast

from rota.daemon.errors import RefusedError
from rota.errors import shown
from rota.wire.job_request import JobRequest, job_fields

LABELS = ("gpu_types", "node_labels")
LONG_LIST_HINTS = {"command": "put it into a script", "mounts": "mount a parent folder"}
FIELDS = job_fields()
TEXTS = tuple(name for name, each in FIELDS.items() if each.type == "str")
COLLECTIONS = tuple(name for name, each in FIELDS.items() if each.type.startswith(("list", "dict")))
NUMBERS = tuple(name for name, each in FIELDS.items() if each.type in ("int", "list[int]"))
MAX_BYTES = 128 * 1024
MAX_PATH = 4096
MAX_LABEL = 128
MAX_TEXT = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_LABEL = re.compile(rf"(?=.{{1,128}}\Z){_PART}(/{_PART})*", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", re.ASCII)
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(/[^/:]+)*", re.ASCII)
_PORTS = re.compile(r"([0-9]{1,5}):([0-9]{1,5})", re.ASCII)
_SNAPSHOT = re.compile(r"[0-9a-f]{64}", re.ASCII)
_RESERVED_VARIABLE = re.compile(
    r"ROTA_(?!PATIENCE$).*|(LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE|NUM_GPUS|MASTER_(ADDR|PORT)|EPOCHS_DONE"
    r"|(CUDA|NVIDIA)_VISIBLE_DEVICES"
)
MAX_PORT = 65535


def check(request: JobRequest, *, is_contained: bool) -> None:
    """Raises for the first invalid field. `is_contained`: the job runs in an image, its own or the
    image of the site."""
    _check_command(request.command)
    _match(
        "name", request.name, pattern=_NAME, hint="letters, digits, '.', '_' and '-', at most 63"
    )
    for name in ("project", "category"):
        if value := getattr(request, name):
            _match(name, value, pattern=_LABEL, hint="letters, digits, '.', '_', '/' and '-'")
    _check_env(request.env)
    if request.image:
        _match("image", request.image, pattern=_IMAGE, hint="a name such as registry/name:tag")
    if request.workdir:
        _check_workdir(request)
    _check_ranges(request)
    if request.snapshot:
        _match(
            "snapshot",
            request.snapshot,
            pattern=_SNAPSHOT,
            hint="the id of a shipped folder",
        )
    _check_mounts(request, is_contained=is_contained)
    for ports in request.ports:
        parse_ports(ports)


def _check_ranges(request: JobRequest) -> None:
    for name, value in _filled(request, NUMBERS):
        info = FIELDS[name].info
        for number in cast("list[int]", value) if isinstance(value, list) else [value]:
            is_low = info.minimum is not None and number < info.minimum
            if is_low or (info.maximum is not None and number > info.maximum):
                what = f"{shown(str(number))} is out of bounds"
                raise RefusedError(name, what, f"use {info.minimum} to {info.maximum}")


def _check_lists(request: JobRequest) -> None:
    for name, value in _filled(request, COLLECTIONS):
        most = FIELDS[name].info.max_items
        if most is not None and len(value) > most:
            raise RefusedError(
                name, f"it has more than {most} entries", LONG_LIST_HINTS.get(name, "remove some")
            )
        if name in LABELS and not all(0 < len(each) <= MAX_LABEL for each in _texts(value)):
            raise RefusedError(name, f"each entry needs 1 to {MAX_LABEL} characters", "shorten it")


def parse_ports(text: str) -> tuple[int, int]:
    """`HOST:JOB`."""
    found = _PORTS.fullmatch(text)
    numbers = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(0 < each <= MAX_PORT for each in numbers):
        raise RefusedError("ports", f"'{shown(text, 40)}' is not a pair of ports", "write 8080:80")
    return numbers


def parse_mount(text: str) -> tuple[str, str, bool]:
    """`SOURCE:TARGET` or `SOURCE:TARGET:rw`: source, target, whether it may be written. On a
    cluster the source may be `pvc:CLAIM`, `pvc:CLAIM/FOLDER` or `nfs:SERVER:/PATH`."""
    source, target, how = _mount_parts(text)
    if how not in ("", "ro", "rw"):
        raise RefusedError("mounts", f"unknown mount option '{how[:20]}'", "use ro or rw")
    check_path("mounts", target)
    return source, target, how == "rw"


def claim_of(source: str) -> str:
    """The PersistentVolumeClaim of a mount source; empty for other sources."""
    kind, _, rest = source.partition(":")
    return rest.partition("/")[0] if kind == "pvc" else ""


def _mount_parts(text: str) -> tuple[str, str, str]:
    kind, _, rest = text.partition(":")
    if kind not in ("pvc", "nfs"):
        check_path("mounts", kind)
        target, _, how = rest.partition(":")
        return kind, target, how
    name, _, rest = rest.partition(":")
    if kind == "nfs":
        _match("mounts", name, pattern=_HOST, hint="nfs:SERVER:/PATH:/TARGET")
        path, _, rest = rest.partition(":")
        check_path("mounts", path)
        name = f"{name}:{path}"
    elif not _CLAIM.fullmatch(name) or _leaves_folder(name):
        what = f"'{shown(name)}' is not a valid claim"
        raise RefusedError("mounts", what, "use pvc:NAME:/TARGET or pvc:NAME/FOLDER:/TARGET")
    target, _, how = rest.partition(":")
    return f"{kind}:{name}", target, how


def check_path(name: str, text: str) -> None:
    if not text.startswith("/") or _leaves_folder(text):
        what = f"'{text[:60]}' is not an absolute path"
        raise RefusedError(name, what, "start with / and do not use ..")


def _leaves_folder(path: str) -> bool:
    return ".." in path.split("/") or len(path) > MAX_PATH


def _check_workdir(request: JobRequest) -> None:
    if not request.snapshot:
        check_path("workdir", request.workdir)
        return
    if request.workdir.startswith("/") or _leaves_folder(request.workdir):
        what = f"'{shown(request.workdir)}' is not inside the shipped folder"
        raise RefusedError("workdir", what, "write a path relative to that folder, without ..")


def check_shape(request: JobRequest) -> None:
    """Check sizes and encoding, before any other check reads the values."""
    _check_lists(request)
    for name, text in _filled(request, TEXTS):
        if len(text) > MAX_TEXT:
            raise RefusedError(name, f"it has more than {MAX_TEXT} characters", "shorten it")
        _require_text(name, text)
    for name, value in _filled(request, COLLECTIONS):
        for text in _texts(value):
            _require_text(name, text)


def _filled(request: JobRequest, names: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    """The fields that are not empty. Most fields are empty in most requests, and a submit of
    thousands of jobs must be fast."""
    values = _getter(names)(request)
    return compress(zip(names, values, strict=True), values)


@cache
def _getter(names: tuple[str, ...]) -> Callable[[JobRequest], tuple[Any, ...]]:
    return attrgetter(*names)


def _require_text(name: str, text: str) -> None:
    # Nearly all texts are printable ASCII: skip the other checks.
    if text.isascii() and text.isprintable():
        return
    if "\0" in text:
        raise RefusedError(name, "it contains a NUL character", "remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(name, "it is not valid text", "use UTF-8") from None


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [each for item in cast("dict[str, str]", value).items() for each in item]
    if isinstance(value, list):
        return [each for each in cast("list[object]", value) if isinstance(each, str)]
    return []


def _check_command(command: list[str]) -> None:
    if not command or not command[0]:
        raise RefusedError("command", "it is empty", "write the command after --")
    if sum(map(len, command)) > MAX_BYTES:
        raise RefusedError("command", "it is too long", "put it into a script")


def _check_env(env: dict[str, str]) -> None:
    for name in env:
        _match("env", name, pattern=_VARIABLE, hint="a name of letters, digits and '_'")
        if _RESERVED_VARIABLE.fullmatch(name):
            raise RefusedError("env", f"{name} is set by rota", "choose another name")
    if sum(len(name) + len(value) for name, value in env.items()) > MAX_BYTES:
        raise RefusedError("env", "it is larger than 128 KiB", "put it into a file")


def _check_mounts(request: JobRequest, *, is_contained: bool) -> None:
    if request.mounts and not is_contained:
        raise RefusedError("mounts", "only a job with an image can have mounts", "use --image")
    targets: set[str] = set()
    for mount in request.mounts:
        target = parse_mount(mount)[1].rstrip("/")
        if target in targets:
            what = f"two folders are mounted at {shown(target or '/')}"
            raise RefusedError("mounts", what, "use another target; the site also adds mounts")
        targets.add(target)


def _match(name: str, value: str, *, pattern: re.Pattern[str], hint: str) -> None:
    if not pattern.fullmatch(value):
        raise RefusedError(name, f"{value[:60]!r} is not allowed", f"use {hint}")
