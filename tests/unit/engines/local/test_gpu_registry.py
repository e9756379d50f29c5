"""GPUs that workers hold keep their numbers and stay, whatever the driver reports."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rota.core.model.node import Gpu
from rota.core.model.units import GIB
from rota.engines.interface import GpuReading
from rota.engines.local.gpu_registry import GpuRegistry
from rota.engines.local.gpus import NvmlGpus, VirtualGpus, node_of
from tests.unit.engines import fake_nvml
from tests.unit.engines.fake_nvml import Card


@dataclass
class ListedGpus:
    """The driver numbers what it sees from 0."""

    uuids: list[str] = field(default_factory=list)

    def read(self) -> tuple[GpuReading, ...]:
        return tuple(GpuReading(index, uuid, "A100", GIB) for index, uuid in enumerate(self.uuids))

    def visible_names(self) -> dict[int, str]:
        return dict(enumerate(self.uuids))

    def mps_pipe_dir(self) -> str:
        return ""


def numbers(registry: GpuRegistry) -> dict[str, int]:
    return {each.uuid: each.index for each in registry.read() if not each.is_missing}


def missing(registry: GpuRegistry) -> list[int]:
    return [each.index for each in registry.read() if each.is_missing]


def test_numbers_follow_the_uuid_when_a_held_gpu_disappears(tmp_path: Path) -> None:
    path, held = tmp_path / "gpus.json", {"GPU-a", "GPU-c"}
    driver = ListedGpus(["GPU-a", "GPU-b", "GPU-c"])
    assert numbers(GpuRegistry(driver, path, held=lambda: held)) == {
        "GPU-a": 0,
        "GPU-b": 1,
        "GPU-c": 2,
    }
    driver.uuids = ["GPU-b", "GPU-c"]
    again = GpuRegistry(driver, path, held=lambda: held)
    assert numbers(again) == {"GPU-b": 1, "GPU-c": 2}
    assert missing(again) == [0]
    assert again.visible_names() == {0: "GPU-a", 1: "GPU-b", 2: "GPU-c"}
    node = node_of(again)
    assert node.gpus == tuple(Gpu(index, "A100", GIB) for index in range(3))
    assert node.missing_gpus == {0}
    held.clear()
    assert (missing(again), len(node_of(again).gpus)) == ([], 2)


def test_a_new_gpu_does_not_take_the_number_of_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    driver = ListedGpus(["GPU-a"])
    registry = GpuRegistry(driver, path, held=lambda: {"GPU-a"})
    registry.read()
    driver.uuids = ["GPU-new"]
    assert (numbers(registry), missing(registry)) == ({"GPU-new": 1}, [0])


def test_a_start_with_fewer_virtual_gpus_keeps_those_that_workers_hold(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    GpuRegistry(VirtualGpus(4, GIB), path, held=set).read()
    node = node_of(GpuRegistry(VirtualGpus(0, 0), path, held=lambda: {"1", "3"}))
    assert [gpu.index for gpu in node.gpus] == [1, 3]
    assert node.missing_gpus == {1, 3}


def test_a_failing_driver_leaves_the_held_gpus_missing_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_nvml, "cards", [Card("GPU-a"), Card("GPU-b")])
    path = tmp_path / "gpus.json"
    first = GpuRegistry(NvmlGpus(fake_nvml), path, held=lambda: {"GPU-b"})
    assert numbers(first) == {"GPU-a": 0, "GPU-b": 1}
    monkeypatch.setattr(fake_nvml, "count_error", fake_nvml.NVML_ERROR_UNKNOWN)
    monkeypatch.setattr(fake_nvml, "init_error", fake_nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    second = GpuRegistry(NvmlGpus(fake_nvml), path, held=lambda: {"GPU-b"})
    for registry in (first, second):
        node = node_of(registry)
        assert [gpu.index for gpu in node.gpus] == [1]
        assert node.missing_gpus == {1}
    monkeypatch.setattr(fake_nvml, "count_error", 0)
    monkeypatch.setattr(fake_nvml, "init_error", 0)
    for registry in (first, second):
        assert numbers(registry) == {"GPU-a": 0, "GPU-b": 1}
        assert missing(registry) == []


def test_a_broken_gpu_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers have to leave."""
    cards = [Card("GPU-a"), Card("GPU-b")]
    monkeypatch.setattr(fake_nvml, "cards", cards)
    path = tmp_path / "gpus.json"
    registry = GpuRegistry(NvmlGpus(fake_nvml), path, held=lambda: {"GPU-b"})
    registry.read()
    cards[1].is_lost = True
    for each in (registry, GpuRegistry(NvmlGpus(fake_nvml), path, held=lambda: {"GPU-b"})):
        assert [gpu.index for gpu in node_of(each).gpus] == [0]
        assert [reading.index for reading in each.read()] == [0, 1]


def test_a_damaged_or_unwritable_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_text("{")
    assert numbers(GpuRegistry(VirtualGpus(1, GIB), path, held=set)) == {"virtual-0": 0}
    unwritable = tmp_path / "none" / "gpus.json"
    assert numbers(GpuRegistry(VirtualGpus(1, GIB), unwritable, held=set)) == {"virtual-0": 0}
