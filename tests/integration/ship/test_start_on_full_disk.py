"""A start on a disk without space: the job waits with the cause, and runs when there is space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rota.wire.jobs import FINAL_STATES, JobView
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.small_disks import can_mount, fill, on_a_disk

MIB = 1024**2


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """With one GPU, and a small disk for shipped code only: the rest of the daemon has space."""
    if not can_mount(tmp_path):
        pytest.skip("needs the right to mount")
    with temporary_daemon(gpus="1x16GiB", runner=on_a_disk("snapshots", "4m")) as found:
        found.launch()
        found.enter_mount_namespace()
        found.ready()
        yield found


def waiting(daemon: DaemonProcess, job: str) -> JobView | None:
    """The job while it backs off after a failed start."""
    found = daemon.client.show(job).job
    assert found.state not in FINAL_STATES, found.reason
    return found if found.state == "queued" and found.attempt else None


def test_shipped_code_that_does_not_fit_waits_for_space(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "data").write_bytes(bytes(MIB))
    snapshot = daemon.client.ship(code)
    filler = daemon.state / "snapshots" / "filler"
    fill(filler)

    request = replace(daemon.request("say start", snapshot=snapshot), workdir="")
    job = daemon.client.submit(request)
    found = wait_until(lambda: waiting(daemon, job), "the job to wait for space")
    assert "cannot start: " in found.reason
    assert "no space left on the disk" in found.reason
    assert daemon.readiness() == 200

    other = daemon.submit("say start")
    assert daemon.ends(other).state == "succeeded", "the GPU is free for jobs that need no space"

    filler.unlink()
    assert daemon.ends(job).state == "succeeded"
    story = daemon.client.story(job)
    assert not any("exit code" in entry.reason for entry in story), story
