"""Job lookup by name, and the working folder of shipped code."""

import signal
import subprocess
from pathlib import Path

import pytest

from rota.client.http import AnswerError
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import started
from tests.support.timeouts import PATIENCE_S


def test_name_means_the_unfinished_job_or_else_the_newest(daemon: DaemonProcess) -> None:
    first, second = (daemon.submit("true", name="twin", hold=True) for _ in range(2))
    with pytest.raises(AnswerError, match=f"could be {second}.*{first}"):
        daemon.client.show("twin")
    daemon.client.cancel(second)
    assert daemon.client.show("twin").job.id == first
    daemon.client.cancel(first)
    assert daemon.client.show("twin").job.id == second


def test_name_of_an_array_is_refused_for_one_job(daemon: DaemonProcess) -> None:
    daemon.submit("true", name="sweep", array="2", hold=True)
    daemon.submit("true", name="sweep", array="3", hold=True)
    with pytest.raises(AnswerError, match="is an array"):
        daemon.client.show("sweep")
    assert daemon.rota("cancel", "sweep").returncode == 0
    found = [each for each in daemon.client.jobs().jobs if each.name.startswith("sweep[")]
    assert [each.state for each in found] == ["cancelled"] * 3 + ["held"] * 2


def test_shipped_code_keeps_its_folders(daemon: DaemonProcess, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "where.sh").write_text("pwd")
    ship = ("submit", "--gpus", "0", "--ship", str(tmp_path), "--workdir")
    done = daemon.rota(*ship, "src", "--follow", "--", "sh", "where.sh")
    assert done.stdout.rstrip().endswith("/src")
    done = daemon.rota(*ship, str(tmp_path), "--", "true")
    assert done.returncode == 2
    assert "is not inside the folder that --ship uploads" in done.stderr


def test_interrupted_command_says_that_the_job_continues(daemon: DaemonProcess) -> None:
    script = "echo here; sleep 1000"
    command = daemon.command("submit", "--gpus", "0", "--follow", "--", "sh", "-c", script)
    with started(**command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as rota:
        assert rota.stdout is not None
        assert rota.stderr is not None
        job = rota.stdout.readline().decode().strip()
        assert rota.stdout.readline() == b"here\n"
        rota.send_signal(signal.SIGINT)
        assert rota.wait(PATIENCE_S) == 130
        expected = f"rota: job {job} has not ended; 'rota cancel {job}' cancels it\n"
        assert rota.stderr.read().decode() == expected
    daemon.client.cancel(job)
