# ruff: noqa: N802 - names of the real functions
"""A fake `pynvml`: the same functions, answered from a list of GPUs instead of a driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_ERROR_UNKNOWN = 999

_WORDS = {
    NVML_ERROR_NOT_SUPPORTED: "Not Supported",
    NVML_ERROR_DRIVER_NOT_LOADED: "Driver Not Loaded",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    NVML_ERROR_GPU_IS_LOST: "GPU is lost",
    NVML_ERROR_LIB_RM_VERSION_MISMATCH: "RM has detected an NVML/RM version mismatch.",
    NVML_ERROR_UNKNOWN: "Unknown Error",
}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return _WORDS[self.value]


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818 - its real name
    pass


@dataclass
class Card:
    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB"
    total: int = 40 * 1024**3
    used: int = 0
    gpu_percent: int | None = 0
    held: Mapping[int, int | None] = field(default_factory=dict)
    ecc_errors: int | None = 0
    is_lost: bool = False


cards: list[Card] = []
init_error = 0
count_error = 0


def nvmlInit() -> None:
    if init_error:
        raise NVMLError(init_error)


def nvmlShutdown() -> None:
    pass


def nvmlDeviceGetCount() -> int:
    if count_error:
        raise NVMLError(count_error)
    return len(cards)


def nvmlDeviceGetHandleByIndex(index: int) -> Card:
    if cards[index].is_lost:
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    return cards[index]


def nvmlDeviceGetUUID(card: Card) -> str:
    return card.uuid


def nvmlDeviceGetName(card: Card) -> str:
    return card.name


def nvmlDeviceGetMemoryInfo(card: Card) -> SimpleNamespace:
    return SimpleNamespace(total=card.total, used=card.used, free=card.total - card.used)


def nvmlDeviceGetUtilizationRates(card: Card) -> SimpleNamespace:
    if card.gpu_percent is None:
        raise NVMLError_NotSupported(NVML_ERROR_NOT_SUPPORTED)
    return SimpleNamespace(gpu=card.gpu_percent, memory=0)


def nvmlDeviceGetComputeRunningProcesses(card: Card) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in card.held.items()]


def nvmlDeviceGetTotalEccErrors(card: Card, error_type: int, counter: int) -> int:
    assert (error_type, counter) == (NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC)
    if card.ecc_errors is None:
        raise NVMLError_NotSupported(NVML_ERROR_NOT_SUPPORTED)
    return card.ecc_errors
