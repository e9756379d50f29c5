"""Shipped code in pods that do not see the daemon's disk."""

import shutil
from pathlib import Path

import pytest

from rota.client import Client
from rota.wire.jobs import JobRequest
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess
from tests.kubernetes.test_people import person, token_of

__all__ = ["person"]

MAIN = """
. ./words.sh
touch added ../added
echo "$ROTA_JOB $ROTA_ATTEMPT $words" >> "$HERE/journal"
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.sh").write_text(MAIN)
    (tmp_path / "words.sh").write_text("words=shipped")
    (tmp_path / "src" / "words.sh").symlink_to("../words.sh")
    return tmp_path


def test_a_job_runs_in_its_shipped_code(kube_daemon: KubernetesDaemonProcess, code: Path) -> None:
    env = ["--env", f"HERE={kube_daemon.place}"]
    flags = ["--ship", str(code), "--workdir", "src", "--gpus", "1", *env]
    done = kube_daemon.rota("submit", *flags, "--", "sh", "main.sh")
    assert (done.returncode, done.stderr) == (0, "")
    job = done.stdout.strip()
    kube_daemon.says(job, "shipped")
    assert kube_daemon.ends(job).state == "succeeded", kube_daemon.why(job)


def test_a_user_of_the_cluster_ships_code(
    kube_daemon: KubernetesDaemonProcess, code: Path, person: tuple[str, Path]
) -> None:
    kube_daemon.place.chmod(0o777)
    with Client(kube_daemon.endpoint, token=token_of(person[1]), takes_context=False) as theirs:
        env = {"HERE": str(kube_daemon.place)}
        snapshot = theirs.ship(code)
        request = JobRequest(["sh", "src/main.sh"], env=env, gpus="1", snapshot=snapshot)
        job = theirs.submit(request)
    kube_daemon.says(job, "shipped")
    assert kube_daemon.ends(job).state == "succeeded", kube_daemon.why(job)


def test_lost_code_is_reported(kube_daemon: KubernetesDaemonProcess, code: Path) -> None:
    snapshot = kube_daemon.client.ship(code)
    request = JobRequest(["sh", "main.sh"], workdir="src", gpus="1", snapshot=snapshot, hold=True)
    job = kube_daemon.client.submit(request)
    kube_daemon.kill()
    shutil.rmtree(kube_daemon.state / "snapshots")
    kube_daemon.up()
    kube_daemon.client.release(job)
    ended = kube_daemon.ends(job)
    assert ended.state == "failed"
    assert "this daemon does not have the shipped code" in ended.reason
    assert kube_daemon.has_room()
