"""The commands of the tutorial, of the how-to pages and of the README run as written."""

import os
import re
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess, temporary_daemon
from tests.support.doc_commands import DocCommand, run_page, steps
from tests.support.ports import reserve_port
from tests.tidy.reference_tables import first_column
from tests.tidy.tree import ROOT, relative

PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *(ROOT / "docs" / "how-to").glob("*.md"),
]

OF_A_SHELL = {
    *("HERE", "HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "USER", "_")
}
"""Variables of a login shell, of the shell itself, and of the test."""


def runs(page: Path) -> list[str]:
    found = steps(page.read_text())
    return [each.text for each in found if isinstance(each, DocCommand) and not each.need]


EXAMPLE_PORT = re.compile(r"\b80[0-9]{2}\b")
WITH_COMMANDS = sorted(page for page in PAGES if runs(page))


@pytest.fixture
def place() -> Generator[DaemonProcess]:
    """A folder and settings for a daemon, which the page may start itself."""
    with temporary_daemon() as daemon:
        try:
            yield daemon
        finally:
            daemon.rota("down", "--stop-jobs")


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=relative)
def test_page(page: Path, place: DaemonProcess) -> None:
    if "podman" in " ".join(runs(page)) and (shutil.which("podman") is None or os.getuid() != 0):
        pytest.skip("podman is not installed, or we are not root")
    if not any(command.startswith("rota up") for command in runs(page)):
        place.up()
    ports = {port: str(reserve_port()) for port in set(EXAMPLE_PORT.findall(page.read_text()))}
    # Two runs of the tests may not use the same ports.
    text = EXAMPLE_PORT.sub(lambda port: ports[port[0]], page.read_text())
    differences = run_page(text, place.place, env=place.command()["env"])
    assert not differences, "\n\n".join(differences)


def test_every_variable_of_a_real_job_is_in_the_reference(daemon: DaemonProcess) -> None:
    """A job with as much as a job on one machine can have."""
    for fields in (
        {"array": "0-1", "epochs": 2.0},
        {"gpus": "2", "gpus_per_worker": 1},
        {"gpu_memory": "4GiB"},
    ):
        jobs = daemon.client.submit_many([daemon.request("env", **fields)])
        for job in jobs:
            daemon.ends(job)
            names = set(re.findall(r"^([A-Z_]+)=", daemon.output(job).decode(), re.MULTILINE))
            assert names >= {"ROTA_JOB", "RANK", "CUDA_VISIBLE_DEVICES"}
            assert names - first_column("environment.md") - OF_A_SHELL - set(os.environ) == set()
