"""Jobs on real pods, from the command line to the cluster and back."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from rota.wire.jobs import JobRequest
from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess
from tests.kubernetes.support.shared_daemon import shared_daemon
from tests.support.daemon_process import wait_until
from tests.support.live_job import LiveJob
from tests.tidy.tree import ROOT

ALL = "4"
LOG_BYTES, LOG_FILES = 8192, 2
MEETING = """
import os, socket, time
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
card = os.environ["NVIDIA_VISIBLE_DEVICES"]
if rank == 0:
    with socket.create_server(("", place[1])) as door:
        print(len({card, door.accept()[0].recv(99).decode()}), "cards")
while rank:
    try:
        with socket.create_connection(place) as line:
            line.sendall(card.encode())
            break
    except ConnectionRefusedError:
        time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def shared(running_cluster: Cluster) -> Iterator[KubernetesDaemonProcess]:
    limits = {"ROTA_LOG_SIZE": f"{LOG_BYTES}", "ROTA_LOG_FILES": f"{LOG_FILES}"}
    with shared_daemon(running_cluster, **limits) as made:
        yield made


def test_logs_sessions_and_history_of_a_job(kube_daemon: KubernetesDaemonProcess) -> None:
    words = [
        "--gpus",
        "1",
        "--workdir",
        str(kube_daemon.place),
        "--env",
        f"HERE={kube_daemon.place}",
    ]
    script = 'echo begun; until [ -e "$HERE/on" ]; do sleep 0.1; done; echo done; exit 3'
    submitted = kube_daemon.rota("submit", *words, "--", "/bin/sh", "-c", script)
    job = submitted.stdout.strip()
    pod = kube_daemon.pod_runs(job)
    wait_until(lambda: kube_daemon.rota("logs", job).stdout == "begun\n", "its first line")
    echo = "echo $ROTA_JOB $NVIDIA_VISIBLE_DEVICES"
    seen = kube_daemon.rota("exec", job, "--", "/bin/sh", "-c", echo)
    assert seen.stdout.startswith(f"{job} GPU-0000")
    assert cards_of(kube_daemon, job) == [seen.stdout.split()[1]]
    kube_daemon.allow("on")
    assert kube_daemon.rota("wait", job).returncode == 3
    kube_daemon.kubectl("delete", "pod", pod, "--timeout=60s")
    assert kube_daemon.pods(job) == []
    assert kube_daemon.rota("logs", job).stdout == "begun\ndone\n"
    assert "exit code 3" in kube_daemon.status_of(job)["reason"]
    assert kube_daemon.has_room()


def test_the_end_of_a_long_output_is_kept(kube_daemon: KubernetesDaemonProcess) -> None:
    lines = [f"line {number}" for number in range(10_000)]
    code = "for n in range(10_000): print('line', n)"
    job = kube_daemon.client.submit(JobRequest([sys.executable, "-c", code], workdir="/", gpus="0"))
    assert kube_daemon.ends(job).state == "succeeded"
    wait_until(lambda: kube_daemon.output(job).endswith(b"line 9999\n"), "its last line")
    kept = kube_daemon.output(job)
    assert LOG_BYTES < len(kept) <= LOG_FILES * LOG_BYTES
    assert kept.decode().splitlines() == lines[-len(kept.splitlines()) :]
    folder = kube_daemon.state / "engine-kubernetes" / job
    files = [each for each in folder.rglob("worker-0.log*") if "times" not in each.name]
    assert sum(each.stat().st_size for each in files) == len(kept)


def test_a_preempted_training_resumes(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    example = [sys.executable, str(ROOT / "examples" / "numpy_model.py")]
    command = [*example, "--epochs", "6", "--seconds-per-epoch", "1"]
    env = {"PYTHONPATH": str(ROOT / "trainer" / "src")}
    low = kube_daemon.client.submit(JobRequest(command, env=env, workdir="/", gpus=ALL))
    wait_until(lambda: kube_daemon.client.show(low).job.progress, "its first epoch")
    high = kube_daemon.submit("say came; await on", gpus="1", priority=9, hours=0.1)
    kube_daemon.says(high, "came")
    assert kube_daemon.state_of(low) == "queued"
    progress, finish = until(lambda: how_far(kube_daemon, low), "its progress and its end")
    assert 0 < progress < 1
    assert finish > datetime.now(UTC)
    assert [each["metadata"]["labels"]["rota.dev/job"] for each in kube_daemon.live_pods()] == [
        high
    ]
    kube_daemon.allow("on")
    assert kube_daemon.ends(low).state == "succeeded"
    before, after = (kube_daemon.rota("logs", low, "--attempt", each).stdout for each in "12")
    assert set(before.splitlines()).isdisjoint(after.splitlines())
    assert len((before + after).splitlines()) == 6


def cards_of(kube_daemon: KubernetesDaemonProcess, job: str) -> list[str]:
    """The GPUs that the device plugin chose for the only worker."""
    [worker] = kube_daemon.client.show(job).attempts[-1].workers
    return worker.cards


def how_far(kube_daemon: KubernetesDaemonProcess, job: str) -> tuple[float, datetime] | None:
    """The progress in the status of the object, as `kubectl get` shows it."""
    status = kube_daemon.status_of(job)
    finish = status.get("expectedFinish")
    return (status["progress"], datetime.fromisoformat(finish)) if finish else None


def test_workers_reach_each_other_and_each_has_a_gpu(kube_daemon: KubernetesDaemonProcess) -> None:
    command = [sys.executable, "-c", MEETING]
    job = kube_daemon.client.submit(JobRequest(command, workdir="/", gpus="2", gpus_per_worker=1))
    assert kube_daemon.ends(job).state == "succeeded", kube_daemon.output(job)
    assert kube_daemon.output(job) == b"2 cards\n"


def test_live_training_is_resized(kube_daemon: KubernetesDaemonProcess) -> None:
    other = kube_daemon.submit("say came; await first", gpus="3")
    kube_daemon.says(other, "came")
    job = LiveJob(kube_daemon, gpus="1..2")
    job.trains_with(1)
    kube_daemon.allow("first")
    job.trains_with(2)
    until(lambda: len(kube_daemon.live_pods(job.id)) == 2, "its two pods")
    assert kube_daemon.rota("resize", job.id, "1").returncode == 0
    job.trains_with(1)
    until(lambda: len(kube_daemon.live_pods(job.id)) == 1, "one of its pods to end")
    job.finishes()
    assert kube_daemon.client.show(job.id).job.attempt == 1
