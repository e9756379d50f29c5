"""The GPUs of this machine: those that NVML knows, or virtual ones to try things with."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import structlog

from rota.core.model import GIB, Gpu, Node, NodeId
from rota.errors import UserError

log = structlog.get_logger()

VIRTUAL = re.compile(r"(?P<n>\d+)x(?P<memory>\d+(\.\d+)?)GiB")
VIRTUAL_MAX = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment. With a `problem`, nothing is to be started on it."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    utilisation: float = 0.0
    held_bytes: Mapping[int, int] = field(default_factory=dict[int, int])
    """Process number -> what it holds of the card's memory; 0 where the driver does not say."""
    problem: str = ""


class Gpus(Protocol):
    def read(self) -> tuple[Reading, ...]:
        """All GPUs, the unusable included."""
        ...

    def visible_names(self) -> dict[int, str]:
        """GPU index -> what CUDA_VISIBLE_DEVICES calls it, as of the last `read`."""
        ...

    def has_mps(self) -> bool:
        """Whether CUDA's multi-process service runs, which can hold a share to its memory."""
        ...


@dataclass(frozen=True, slots=True)
class VirtualGpus:
    n: int
    memory_bytes: int

    def read(self) -> tuple[Reading, ...]:
        return tuple(
            Reading(index, f"virtual-{index}", "virtual", self.memory_bytes)
            for index in range(self.n)
        )

    def visible_names(self) -> dict[int, str]:
        return {index: str(index) for index in range(self.n)}

    def has_mps(self) -> bool:
        return False


def parse_virtual(text: str) -> VirtualGpus:
    """`4x16GiB`: four GPUs of 16 GiB each."""
    match = VIRTUAL.fullmatch(text)
    if match is None or not 0 <= int(match["n"]) <= VIRTUAL_MAX:
        what = f"{text!r} does not name virtual GPUs"
        raise UserError(what, f"write N x memory as in 4x16GiB, with at most {VIRTUAL_MAX} GPUs")
    return VirtualGpus(int(match["n"]), int(float(match["memory"]) * GIB))


class NvmlGpus:
    """Speaks to the driver through `pynvml`, which is imported only here: most machines that run
    a command have no GPU."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._known: tuple[Reading, ...] = ()
        self._names: dict[int, str] = {}

    def read(self) -> tuple[Reading, ...]:
        """When the driver itself fails, the cards known before are told of, none of them usable."""
        try:
            n_cards = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            problem = f"the driver does not answer: {str(error).lower()}"
            return tuple(
                Reading(each.index, each.uuid, each.name, each.memory_bytes, problem=problem)
                for each in self._known
            )
        self._known = tuple(self._read(index) for index in range(n_cards))
        # A card that cannot say its name just now keeps it.
        self._names = self._names | {each.index: each.uuid for each in self._known if each.uuid}
        return self._known

    def visible_names(self) -> dict[int, str]:
        return self._names

    def has_mps(self) -> bool:
        pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
        return (Path(pipes) / "control").exists()

    def _read(self, index: int) -> Reading:
        nvml = self._nvml
        try:
            card = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(card)
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(card)
            return Reading(
                index=index,
                uuid=nvml.nvmlDeviceGetUUID(card),
                name=nvml.nvmlDeviceGetName(card),
                memory_bytes=memory.total,
                used_bytes=memory.used,
                utilisation=self._utilisation(card),
                held_bytes={each.pid: each.usedGpuMemory or 0 for each in processes},
                problem=self._ecc_problem(card),
            )
        except nvml.NVMLError as error:
            # A card that fell off the bus answers every question with an error.
            return Reading(index, problem=str(error).lower())

    def _utilisation(self, card: object) -> float:
        try:
            return self._nvml.nvmlDeviceGetUtilizationRates(card).gpu / 100
        except self._nvml.NVMLError_NotSupported:
            return 0.0

    def _ecc_problem(self, card: object) -> str:
        """Errors since the last reset of the card; older ones were repaired by it."""
        nvml = self._nvml
        try:
            n_errors = nvml.nvmlDeviceGetTotalEccErrors(
                card, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        except nvml.NVMLError_NotSupported:
            return ""
        return f"{n_errors} uncorrectable memory errors" if n_errors else ""


def find() -> Gpus:
    """The real ones; without a driver, none."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
    except ImportError:
        return VirtualGpus(0, 0)
    except Exception as error:
        if not type(error).__name__.startswith("NVMLError"):
            raise
        _warn_unless_absent(error)
        return VirtualGpus(0, 0)
    return NvmlGpus(nvml)


def _warn_unless_absent(error: Any) -> None:
    """No library or no driver is how a machine without GPUs looks; anything else is a failure."""
    nvml = import_module("pynvml")
    absent = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
    if error.value not in absent:
        what = "the GPU driver is there but does not answer: rota goes on without GPUs"
        log.warning(what, error=str(error).lower())


def node_of(gpus: Gpus) -> Node:
    """This machine, with the GPUs that work."""
    usable = [each for each in gpus.read() if not each.problem]
    return Node(
        id=NodeId(socket.gethostname()),
        gpus=tuple(Gpu(each.index, each.name, each.memory_bytes) for each in usable),
        cpus=float(len(os.sched_getaffinity(0))),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )
