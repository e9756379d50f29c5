"""Which jobs a name means, and where shipped code runs."""

import signal
import subprocess
from pathlib import Path

import pytest

from rota.client.http import AnswerError
from tests.e2e.house import House
from tests.patience import PATIENCE_S


def test_the_one_that_is_not_over_else_the_newest(house: House) -> None:
    first, second = (house.submit("true", name="twin", hold=True) for _ in range(2))
    with pytest.raises(AnswerError, match=f"could be {second}.*{first}"):
        house.client.show("twin")
    house.client.cancel(second)
    assert house.client.show("twin").job.id == first
    house.client.cancel(first)
    assert house.client.show("twin").job.id == second


def test_an_array_is_more_than_one(house: House) -> None:
    house.submit("true", name="sweep", array="2", hold=True)
    house.submit("true", name="sweep", array="3", hold=True)
    with pytest.raises(AnswerError, match="is an array"):
        house.client.show("sweep")
    assert house.rota("cancel", "sweep").returncode == 0
    found = [each for each in house.client.jobs().jobs if each.name.startswith("sweep[")]
    assert [each.state for each in found] == ["cancelled"] * 3 + ["held"] * 2


def test_shipped_code_has_folders(house: House, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "where.sh").write_text("pwd")
    ship = ("submit", "--gpus", "0", "--ship", str(tmp_path), "--workdir")
    done = house.rota(*ship, "src", "--follow", "--", "sh", "where.sh")
    assert done.stdout.rstrip().endswith("/src")
    done = house.rota(*ship, str(tmp_path), "--", "true")
    assert done.returncode == 2
    assert "is not inside the code that --ship sends" in done.stderr


def test_an_interrupt_says_what_goes_on(house: House) -> None:
    script = "echo here; sleep 1000"
    command = house.command("submit", "--gpus", "0", "--follow", "--", "sh", "-c", script)
    with subprocess.Popen(**command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as rota:
        assert rota.stdout is not None
        assert rota.stderr is not None
        job = rota.stdout.readline().decode().strip()
        assert rota.stdout.readline() == b"here\n"
        rota.send_signal(signal.SIGINT)
        assert rota.wait(PATIENCE_S) == 130
        expected = f"rota: job {job} goes on; 'rota cancel {job}' ends it\n"
        assert rota.stderr.read().decode() == expected
    house.client.cancel(job)
