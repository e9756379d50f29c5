"""A daemon that comes back is the same daemon: with its flags, and with its running jobs."""

import json
from collections.abc import Generator

import pytest

from rota.client.http import AnswerError
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.gpu_driver import GpuDriver
from tests.unit.engines import fake_nvml

PATIENT = 'trap "say term; exit 0" TERM; say "start ${ROTA_RESTARTED:-0}"; await go; say end'
FLAGS = ("--virtual-gpus", "2x16GiB")


@pytest.fixture
def daemon() -> Generator[DaemonProcess]:
    """Not started yet, without flags."""
    with temporary_daemon(gpus="") as daemon:
        yield daemon


def test_a_start_uses_the_flags_of_the_last_start(daemon: DaemonProcess) -> None:
    daemon.up(*FLAGS)
    job = daemon.submit(PATIENT)
    daemon.says(job, "start 0")
    daemon.down()
    daemon.up()
    status = daemon.client.status()
    assert (status.gpus, status.flags) == (2, {"virtual_gpus": "2x16GiB"})
    assert daemon.state_of(job) == "running"
    assert "flags    --virtual-gpus 2x16GiB" in daemon.rota("status").stdout
    daemon.down()
    assert "using flags of the last start: --virtual-gpus 2x16GiB" in daemon.log()
    daemon.up("--virtual-gpus", "3x16GiB")
    assert daemon.client.status().gpus == 3
    daemon.allow("go")
    assert daemon.ends(job).state == "succeeded"
    assert [each.words for each in daemon.heard()] == ["start 0", "end"]


def test_a_policy_of_a_flag_stays_until_another_one_is_set(daemon: DaemonProcess) -> None:
    daemon.up(*FLAGS, "--policy", "fifo")
    daemon.down()
    daemon.up()
    assert daemon.client.status().policy == "fifo"
    daemon.client.set_policy("srjf")
    daemon.down()
    daemon.up()
    assert daemon.client.status().policy == "srjf"
    daemon.down()
    daemon.up("--policy", "fifo")
    daemon.down()
    daemon.up()
    assert daemon.client.status().policy == "fifo"


def test_a_start_without_gpus_keeps_the_jobs_that_hold_gpus(daemon: DaemonProcess) -> None:
    daemon.up(*FLAGS)
    job = daemon.submit(PATIENT, gpus="2")
    daemon.says(job, "start 0")
    daemon.down()
    daemon.up("--reset-flags", "--virtual-gpus", "0x1GiB")
    (warning,) = daemon.client.status().warnings
    assert "GPU 0, 1" in warning
    assert job in warning
    (node,) = daemon.client.nodes()
    assert [(gpu.index, gpu.jobs) for gpu in node.gpus] == [(0, [job]), (1, [job])]
    assert all("missing" in gpu.problem for gpu in node.gpus)
    daemon.allow("go")
    assert daemon.ends(job).state == "succeeded"
    assert [each.words for each in daemon.heard()] == ["start 0", "end"]


def test_a_driver_that_fails_stops_no_job(daemon: DaemonProcess) -> None:
    driver = GpuDriver(daemon.home, ["GPU-a", "GPU-b"])
    daemon.tell(PYTHONPATH=driver.python_path)
    daemon.up()
    job = daemon.submit(PATIENT)
    daemon.says(job, "start 0")
    driver.show([], error=fake_nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    daemon.down()
    daemon.up()
    assert daemon.client.status().warnings
    assert daemon.state_of(job) == "running"
    driver.show(["GPU-b", "GPU-a"])
    wait_until(lambda: daemon.client.status().gpus == 2, "the GPUs to be back")
    assert daemon.client.status().warnings == []
    daemon.allow("go")
    assert daemon.ends(job).state == "succeeded"
    assert [each.words for each in daemon.heard()] == ["start 0", "end"]


def test_a_second_daemon_gets_no_gpu_of_the_first(daemon: DaemonProcess) -> None:
    driver = GpuDriver(daemon.home, ["GPU-e2e-a", "GPU-e2e-b"])
    daemon.tell(PYTHONPATH=driver.python_path)
    daemon.up("--gpus-from", "0")
    assert daemon.client.status().gpus == 1
    with temporary_daemon(gpus="") as other:
        other.tell(PYTHONPATH=driver.python_path)
        refused = other.rota("up")
        assert refused.returncode == 1
        pid = daemon.client.status().pid
        assert f"another daemon (process {pid} of user" in refused.stderr
        assert "--gpus-from" in refused.stderr
        assert other.rota("up", "--gpus-from", "0-1").returncode == 1
        assert other.rota("up", "--gpus-from", "x").returncode == 2
        other.up("--gpus-from", "GPU-e2e-b")
        (node,) = other.client.nodes()
        assert [gpu.index for gpu in node.gpus] == [1]
        job = other.submit('say "$CUDA_VISIBLE_DEVICES"')
        other.says(job, "GPU-e2e-b")
        with pytest.raises(AnswerError):
            other.submit("true", gpus="2", name="too large")
    daemon.down()
    assert json.loads((daemon.state / "flags.json").read_text()) == {"gpus_from": "0"}
