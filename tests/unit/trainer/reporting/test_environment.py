"""The environment variables of a worker."""

import os
import subprocess
import sys

import pytest

from rota_trainer.reporting.environment import read_environment

OF_ROTA = {"ROTA_WORKER": "j/1/1/n", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
ALONE = {"ROTA_WORKER": "j/1/0/n", "RANK": "0", "WORLD_SIZE": "1"}
LAUNCHED = {"ROTA_WORKER": "j/1/0/n", "RANK": "0", "ROTA_PROCESSES": "1", "WORLD_SIZE": "2"}
AGENTS = {"ROTA_WORKER": "j/1/1/n", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "j"}


@pytest.mark.parametrize(
    ("env", "rank", "is_reporter"),
    [
        ({}, 0, True),
        (OF_ROTA, 1, True),
        (ALONE, 0, True),
        ({**ALONE, "LOCAL_RANK": "0"}, 0, True),
        ({**ALONE, "LOCAL_RANK": "1"}, 1, False),
        ({**LAUNCHED, "LOCAL_RANK": "0"}, 0, True),
        ({**LAUNCHED, "LOCAL_RANK": "1"}, 1, False),
        ({**AGENTS, "RANK": "2", "LOCAL_RANK": "0"}, 2, True),
        ({**AGENTS, "RANK": "3", "LOCAL_RANK": "1"}, 3, False),
    ],
    ids=[
        "outside of rota",
        "a worker of rota",
        "a worker with several GPUs",
        "a launcher's first in it",
        "a launcher's second in it",
        "the first of a framework that sets the size of the world",
        "the second of a framework that sets the size of the world",
        "an agent's first",
        "an agent's second",
    ],
)
def test_one_process_of_each_worker_reports(
    env: dict[str, str], rank: int, is_reporter: bool
) -> None:
    place = read_environment(env)
    assert (place.rank, place.is_reporter) == (rank, is_reporter)


@pytest.mark.parametrize(
    ("text", "umask"),
    [("0027", 0o027), ("000", 0), ("", None), ("0999", None), ("7777", None), ("-1", None)],
)
def test_a_umask_is_octal_and_within_bounds(text: str, umask: int | None) -> None:
    assert read_environment({"ROTA_UMASK": text}).umask == umask


SCRIPT = "import os, rota_trainer; rota_trainer.start(); print(f'{os.umask(0):04o}')"


@pytest.mark.parametrize(
    "words", [["-c", SCRIPT], ["-m", "rota_trainer", "run", "--", "sh", "-c", "umask"]]
)
def test_umask_is_applied_in_a_container(words: list[str]) -> None:
    env = {**os.environ, "ROTA_UMASK": "0027"}
    command = [sys.executable, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "0027\n"
