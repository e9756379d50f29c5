"""The GPUs that running workers hold keep their numbers, also when the driver does not report them.

A driver that is being updated, or a start with fewer virtual GPUs, must not stop the workers that
already run. And a driver that no longer lists one GPU numbers the following ones anew: a worker
would then seem to hold the GPU of another. So the numbers of GPUs by UUID are in a file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from rota.engines.interface import GpuReading
from rota.engines.local.gpus import Gpus
from rota.engines.local.supervisor import state_files
from rota.engines.local.worker_dirs import WorkerDirs

log = structlog.get_logger()

REGISTRY_NAME = "gpus.json"
NOT_REPORTED = "missing: the machine does not report this GPU; its jobs keep running"


@dataclass(frozen=True, slots=True)
class _KnownGpu:
    index: int
    name: str
    memory_bytes: int
    visible_name: str
    """The name of the GPU in CUDA_VISIBLE_DEVICES."""


class GpuRegistry:
    """The GPUs of a machine with stable numbers. `held` returns the names of the GPUs that running
    workers hold, as in CUDA_VISIBLE_DEVICES. Thread-safe."""

    def __init__(self, gpus: Gpus, path: Path, *, held: Callable[[], Collection[str]]) -> None:
        self._gpus = gpus
        self._path = path
        self._held = held
        self._lock = threading.Lock()
        self._known: dict[str, _KnownGpu] = {}
        self._saved: dict[str, _KnownGpu] | None = None
        self._missing: frozenset[int] = frozenset()

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs that the driver reports, and the missing ones that workers hold."""
        with self._lock:
            self._load()
            readings = self._gpus.read()
            names = self._gpus.visible_names()
            reported = {each.uuid for each in readings if not each.is_missing}
            is_complete = self._known.keys() <= reported
            held = frozenset[str]() if is_complete else frozenset(self._held())
            kept = {
                uuid: gpu
                for uuid, gpu in self._known.items()
                if uuid in reported or gpu.visible_name in held
            }
            numbered = self._numbered(readings, kept)
            known = kept | {
                each.uuid: _KnownGpu(
                    each.index, each.name, each.memory_bytes, names.get(old.index, "")
                )
                for old, each in zip(readings, numbered, strict=True)
                if each.uuid and not each.is_missing and each.memory_bytes
            }
            self._save(known)
            listed = {each.uuid for each in numbered}
            absent = [
                GpuReading(
                    *(gpu.index, uuid, gpu.name, gpu.memory_bytes),
                    problem=NOT_REPORTED,
                    is_missing=True,
                )
                for uuid, gpu in kept.items()
                if uuid not in listed
            ]
            found = tuple(sorted((*numbered, *absent), key=lambda each: each.index))
            self._tell_missing(found)
            return found

    def visible_names(self) -> dict[int, str]:
        with self._lock:
            return {gpu.index: gpu.visible_name for gpu in self._known.values()}

    def mps_pipe_dir(self) -> str:
        return self._gpus.mps_pipe_dir()

    def _numbered(
        self, readings: Collection[GpuReading], kept: dict[str, _KnownGpu]
    ) -> list[GpuReading]:
        """The readings with the numbers of the registry. A missing GPU that no worker holds is only
        a GPU with a problem."""
        taken = {gpu.index for gpu in kept.values()}
        reported = {each.uuid for each in readings}
        unreported = {gpu.index: uuid for uuid, gpu in kept.items() if uuid not in reported}
        numbered: list[GpuReading] = []
        for each in readings:
            # A GPU that answers no query has no UUID: its place in the list identifies it.
            uuid = each.uuid or unreported.get(each.index, "")
            gpu = kept.get(uuid)
            index = each.index if gpu is None else gpu.index
            if gpu is None and index in taken:
                index = next(number for number in range(len(taken) + 1) if number not in taken)
            taken.add(index)
            is_missing = each.is_missing and gpu is not None
            numbered.append(replace(each, index=index, uuid=uuid, is_missing=is_missing))
        return numbered

    def _tell_missing(self, found: Collection[GpuReading]) -> None:
        missing = frozenset(each.index for each in found if each.is_missing)
        if missing - self._missing:
            log.warning("gpus missing, their jobs keep running", gpus=sorted(missing))
        elif self._missing and not missing:
            log.info("missing gpus are back or free", gpus=sorted(self._missing))
        self._missing = missing

    # -- the file ---------------------------------------------------------------------------------

    def _load(self) -> None:
        if self._saved is not None:
            return
        stored = state_files.read_json(str(self._path)) or {}
        for uuid, (index, name, memory_bytes, visible_name) in stored.items():
            self._known[uuid] = _KnownGpu(index, name, memory_bytes, visible_name)
        self._saved = self._known

    def _save(self, known: dict[str, _KnownGpu]) -> None:
        self._known = known
        if known == self._saved:
            return
        rows = {
            uuid: [gpu.index, gpu.name, gpu.memory_bytes, gpu.visible_name]
            for uuid, gpu in known.items()
        }
        try:
            state_files.write_json(str(self._path), rows)
        except OSError as error:
            # The next read tries again: a full disk must not take the GPUs away.
            log.warning("gpu registry not written", error=str(error))
        else:
            self._saved = known


def held_gpus(dirs: WorkerDirs) -> set[str]:
    """The names of the GPUs that workers hold whose end has not been reported."""
    found: set[str] = set()
    for key in dirs.live():
        try:
            spec = dirs.spec(key)
        except Exception as error:
            log.error("file of a worker unreadable", worker=key.folder, exc_info=error)
            continue
        if spec is not None:
            found |= {name for name in spec.env.get("CUDA_VISIBLE_DEVICES", "").split(",") if name}
    return found
