"""The GPUs of this machine: real ones from NVML, or virtual ones for trials and tests."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import structlog

from rota.core.model.node import Gpu, Node, NodeId
from rota.core.model.units import GIB
from rota.engines.interface import GpuReading
from rota.errors import UserError

log = structlog.get_logger()

VIRTUAL = re.compile(r"(?P<n>\d+)x(?P<memory>\d+(\.\d+)?)GiB")
VIRTUAL_MAX = 64
MPS_PIPE_DIR = "CUDA_MPS_PIPE_DIRECTORY"
"""The variable by which the MPS control daemon and its clients agree on a directory."""


class Gpus(Protocol):
    def read(self) -> tuple[GpuReading, ...]:
        """Return all GPUs, unusable ones included."""
        ...

    def visible_names(self) -> dict[int, str]:
        """GPU index -> name for CUDA_VISIBLE_DEVICES, as of the last `read`."""
        ...

    def mps_pipe_dir(self) -> str:
        """The pipe directory of CUDA's multi-process service (MPS), which can limit a share's
        memory; empty if MPS does not run."""
        ...


@dataclass(frozen=True, slots=True)
class VirtualGpus:
    n: int
    memory_bytes: int

    def read(self) -> tuple[GpuReading, ...]:
        return tuple(
            GpuReading(index, f"virtual-{index}", "virtual", self.memory_bytes)
            for index in range(self.n)
        )

    def visible_names(self) -> dict[int, str]:
        return {index: str(index) for index in range(self.n)}

    def mps_pipe_dir(self) -> str:
        return ""


def parse_virtual(text: str) -> VirtualGpus:
    """Parse a text such as `4x16GiB`: four GPUs of 16 GiB each."""
    match = VIRTUAL.fullmatch(text)
    if match is None or not 0 <= int(match["n"]) <= VIRTUAL_MAX:
        what = f"invalid virtual GPUs: {text!r}"
        raise UserError(what, f"write NxMEMORY such as 4x16GiB, with at most {VIRTUAL_MAX} GPUs")
    return VirtualGpus(int(match["n"]), int(float(match["memory"]) * GIB))


class NvmlGpus:
    """GPUs that the NVIDIA driver reports. `nvml` is the module `pynvml`, which only `find`
    imports: most machines that run a command have no GPU."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._is_open = False
        self._trouble = ""
        self._known: tuple[GpuReading, ...] = ()
        self._names: dict[int, str] = {}

    def read(self) -> tuple[GpuReading, ...]:
        """Read all GPUs. If the driver fails, return the GPUs of the last read as missing. The next
        read opens the library again: the driver may have been updated meanwhile."""
        try:
            if not self._is_open:
                self._nvml.nvmlInit()
                self._is_open, self._trouble = True, ""
            n_gpus = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self._close()
            self._warn(error)
            problem = f"GPU driver does not respond: {str(error).lower()}"
            return tuple(
                GpuReading(
                    *(each.index, each.uuid, each.name, each.memory_bytes),
                    problem=problem,
                    is_missing=True,
                )
                for each in self._known
            )
        self._known = tuple(self._read(index) for index in range(n_gpus))
        # A GPU whose UUID cannot be read now keeps its last known name.
        self._names = self._names | {each.index: each.uuid for each in self._known if each.uuid}
        return self._known

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _warn(self, error: Any) -> None:
        """Warn once about a driver that fails. A missing library or driver is normal on a machine
        without GPUs."""
        nvml = self._nvml
        absent = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
        is_normal = error.value in absent and not self._known
        if not is_normal and str(error) != self._trouble:
            log.warning("gpu driver failed, retrying", error=str(error).lower())
        self._trouble = str(error)

    def visible_names(self) -> dict[int, str]:
        return self._names

    def mps_pipe_dir(self) -> str:
        found = os.environ.get(MPS_PIPE_DIR) or "/tmp/nvidia-mps"  # noqa: S108 - the default of NVIDIA
        return found if (Path(found) / "control").exists() else ""

    def _read(self, index: int) -> GpuReading:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            return GpuReading(
                index=index,
                uuid=nvml.nvmlDeviceGetUUID(handle),
                name=nvml.nvmlDeviceGetName(handle),
                memory_bytes=memory.total,
                used_bytes=memory.used,
                utilisation=self._utilisation(handle),
                held_bytes={each.pid: each.usedGpuMemory or 0 for each in processes},
                problem=self._ecc_problem(handle),
            )
        except nvml.NVMLError as error:
            # A GPU that fell off the bus answers every query with an error.
            uuid = self._names.get(index, "")
            return GpuReading(index, uuid, problem=str(error).lower())

    def _utilisation(self, handle: object) -> float:
        try:
            return self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except self._nvml.NVMLError_NotSupported:
            return 0.0

    def _ecc_problem(self, handle: object) -> str:
        """Count errors since the last reset of the GPU; a reset repairs older errors."""
        nvml = self._nvml
        try:
            n_errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        except nvml.NVMLError_NotSupported:
            return ""
        return f"{n_errors} uncorrectable memory errors" if n_errors else ""


def find() -> Gpus:
    """Return the real GPUs; none without a driver."""
    try:
        return NvmlGpus(import_module("pynvml"))
    except ImportError:
        return VirtualGpus(0, 0)


def node_of(gpus: Gpus) -> Node:
    """Return this machine as a node, with its usable GPUs and those that are missing."""
    usable = [each for each in gpus.read() if not each.problem or each.is_missing]
    return Node(
        id=NodeId(socket.gethostname()),
        gpus=tuple(Gpu(each.index, each.name, each.memory_bytes) for each in usable),
        cpus=float(len(os.sched_getaffinity(0))),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        missing_gpus=frozenset(each.index for each in usable if each.is_missing),
    )
