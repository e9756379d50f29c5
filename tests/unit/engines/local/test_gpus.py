"""GPUs from NVML, and virtual GPUs."""

import sys
from pathlib import Path
from types import ModuleType

import pynvml
import pytest
from structlog.testing import capture_logs

from rota.core.model.allocation import Slot
from rota.core.model.commands import StartWorkers
from rota.core.model.job import JobId
from rota.core.model.node import Gpu, NodeId
from rota.core.model.units import GIB
from rota.engines.interface import GpuReading, Program
from rota.engines.local import gpus
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import VirtualGpus
from rota.errors import UserError
from tests.unit.engines import fake_nvml
from tests.unit.engines.fake_nvml import Card


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml)
    monkeypatch.setattr(fake_nvml, "cards", [])
    monkeypatch.setattr(fake_nvml, "init_error", 0)
    monkeypatch.setattr(fake_nvml, "count_error", 0)
    return fake_nvml


def test_fake_nvml_has_the_functions_of_pynvml() -> None:
    spoken = [name for name in vars(fake_nvml) if name.lower().startswith("nvml")]
    assert [name for name in spoken if not hasattr(pynvml, name)] == []
    numbers = [name for name in spoken if name.isupper()]
    assert [getattr(pynvml, name) for name in numbers] == [vars(fake_nvml)[n] for n in numbers]


@pytest.mark.usefixtures("nvml")
def test_read_one_gpu() -> None:
    card = Card("GPU-a", used=GIB, gpu_percent=40, held={12: GIB // 2, 13: None})
    fake_nvml.cards.append(card)
    found = gpus.find()
    expected = GpuReading(0, "GPU-a", card.name, 40 * GIB, GIB, 0.4, {12: GIB // 2, 13: 0})
    assert found.read() == (expected,)
    assert found.visible_names() == {0: "GPU-a"}
    assert gpus.node_of(found).gpus == (Gpu(0, card.name, 40 * GIB),)


@pytest.mark.usefixtures("nvml")
def test_unsupported_queries_are_no_problem() -> None:
    fake_nvml.cards.append(Card("GPU-a", gpu_percent=None, ecc_errors=None))
    [reading] = gpus.find().read()
    assert (reading.utilisation, reading.problem) == (0.0, "")


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (Card("GPU-b", ecc_errors=2), "2 uncorrectable memory errors"),
        (Card("GPU-b", is_lost=True), "gpu is lost"),
    ],
)
@pytest.mark.usefixtures("nvml")
def test_broken_gpu_is_listed_but_not_schedulable(broken: Card, problem: str) -> None:
    fake_nvml.cards.extend([Card("GPU-a"), broken, Card("GPU-c")])
    found = gpus.find()
    assert [each.problem for each in found.read()] == ["", problem, ""]
    assert [gpu.index for gpu in gpus.node_of(found).gpus] == [0, 2]


@pytest.mark.usefixtures("nvml")
def test_repaired_gpu_keeps_its_uuid(tmp_path: Path) -> None:
    fake_nvml.cards.extend([Card("GPU-a"), Card("GPU-b", is_lost=True)])
    engine = LocalEngine(tmp_path, gpus.find())
    start = StartWorkers(JobId("job"), 1, 0, (Slot(NodeId("here"), (0, 1)),))

    def visible() -> str:
        engine.inventory()
        [order] = engine.render(start, Program(("p",))).values()
        return order.env["CUDA_VISIBLE_DEVICES"]

    assert visible() == "GPU-a,1"
    fake_nvml.cards[1].is_lost = False
    assert visible() == "GPU-a,GPU-b"
    fake_nvml.cards[1].is_lost = True
    assert visible() == "GPU-a,GPU-b"


@pytest.mark.usefixtures("nvml")
def test_driver_failure_marks_known_gpus_with_a_problem() -> None:
    fake_nvml.cards.extend([Card("GPU-a", used=GIB, held={12: None}), Card("GPU-b")])
    found = gpus.find()
    before = found.read()
    fake_nvml.count_error = fake_nvml.NVML_ERROR_UNKNOWN
    problem = "GPU driver does not respond: unknown error"
    name = before[0].name
    assert found.read() == (
        GpuReading(0, "GPU-a", name, 40 * GIB, problem=problem, is_missing=True),
        GpuReading(1, "GPU-b", name, 40 * GIB, problem=problem, is_missing=True),
    )
    assert gpus.node_of(found).missing_gpus == {0, 1}
    fake_nvml.count_error = 0
    assert found.read() == before


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (fake_nvml.NVML_ERROR_DRIVER_NOT_LOADED, []),
        (fake_nvml.NVML_ERROR_LIBRARY_NOT_FOUND, []),
        (
            fake_nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            ["rm has detected an nvml/rm version mismatch."],
        ),
    ],
)
@pytest.mark.usefixtures("nvml")
def test_no_driver_means_no_gpus(error: int, words: list[str]) -> None:
    """A failing driver gives a warning; a missing driver does not."""
    fake_nvml.init_error = error
    with capture_logs() as logs:
        assert gpus.find().read() == ()
    assert [each["error"] for each in logs] == words
    assert all(each["log_level"] == "warning" for each in logs)


def test_the_real_library_without_a_driver() -> None:
    """On a machine without a driver; elsewhere, any result is accepted."""
    gpus.find().read()


def test_virtual_gpus() -> None:
    assert gpus.parse_virtual("4x16GiB") == VirtualGpus(4, 16 * GIB)
    assert len(gpus.node_of(VirtualGpus(4, 16 * GIB)).gpus) == 4


@pytest.mark.parametrize("text", ["", "4", "x16GiB", "4x16GB", "-1x16GiB", "65x1GiB", "4x16GiB "])
def test_invalid_virtual_gpus_are_rejected(text: str) -> None:
    with pytest.raises(UserError, match="4x16GiB"):
        gpus.parse_virtual(text)


def test_mps_is_found_in_the_directory_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    found = gpus.NvmlGpus(fake_nvml)
    assert found.mps_pipe_dir() == ""
    (tmp_path / "control").touch()
    assert found.mps_pipe_dir() == str(tmp_path)
