"""Torch jobs on real pods: resizes, lost workers and preemption."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import join

import pytest

from tests.e2e.test_ddp import EPOCHS, epochs_said, train
from tests.integration.torchrun.agents import SCRIPT, TORCHRUN, environment, install, lines_of
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon
from tests.kubernetes.support.worker_pods import delete, kill, resize, wait_for_pods
from tests.support.daemon_process import wait_until
from tests.support.live_job import LiveJob
from tests.support.seed_counts import only_long
from tests.support.torchrun_job import TorchrunJob

pytestmark = only_long

FIXED = '--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:29400"'


@pytest.fixture
def kube_daemon(whole_cluster: Cluster, namespace: str) -> Iterator[KubernetesDaemonProcess]:
    with kubernetes_daemon(whole_cluster, namespace) as made:
        made.up()
        yield made


def test_live_job_is_resized_and_survives_lost_pods(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    job = LiveJob(kube_daemon, gpus="1..3", hold=True)
    resize(kube_daemon, job.id, 1)
    kube_daemon.client.release(job.id)
    assert job.trains_with(1) == [0]
    resize(kube_daemon, job.id, 3)
    assert job.trains_with(3) == [0, 1, 2]
    resize(kube_daemon, job.id, 2)
    assert job.trains_with(2) == [0, 1]
    wait_for_pods(kube_daemon, job.id, 2)
    delete(kube_daemon, job.id, 0)
    [first, second] = job.trains_with(2, without=[0])
    kill(kube_daemon, job.id, first, pid=job.came()[first].pid)
    job.trains_with(2, without=[0, first])
    assert second in job.members()
    job.finishes()
    assert job.attempt() == 1


def test_ddp_job_on_two_pods_is_preempted_and_resumes(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    job = train(kube_daemon, "plain", "--seconds-per-epoch=1")
    wait_until(lambda: kube_daemon.client.show(job).epochs_saved >= 2, "a checkpoint of two epochs")
    assert len(kube_daemon.live_pods(job)) == 2
    high = kube_daemon.submit("say came; await on", gpus="4", priority=9)
    kube_daemon.says(high, "came")
    assert kube_daemon.state_of(job) == "queued"
    kube_daemon.allow("on")
    ended = kube_daemon.ends(job)
    assert (ended.state, ended.attempt, ended.epochs_done) == ("succeeded", 2, EPOCHS)
    first, second = (epochs_said(kube_daemon, job, attempt=attempt) for attempt in (1, 2))
    assert first + second == list(range(1, EPOCHS + 1))


def test_torchrun_job_is_resized_and_survives_lost_agents(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    install(kube_daemon.place / "installed")
    job = TorchrunJob(kube_daemon, "gloo", installed=kube_daemon.place / "installed")
    generation, [first, second] = job.grows_and_shrinks()
    kill(kube_daemon, job.id, first, pid=job.pid(first))
    generation, agents = job.train(2, after=generation)
    assert first not in agents
    assert second in agents
    delete(kube_daemon, job.id, second)
    _, [remaining, newcomer] = job.train(2, after=generation)
    assert remaining in agents
    assert newcomer not in [first, *agents]
    job.finishes()


def test_torchrun_uses_the_address_of_the_first_worker_without_dns(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """Torch's own rendezvous, which publishes the address of the first agent."""
    folder = kube_daemon.place / "run"
    folder.mkdir()
    path = str(Path(sys.executable).parent)
    env = {**environment(kube_daemon.place), "OMP_NUM_THREADS": "1", "PATH": path}
    words = f"exec {join(TORCHRUN)} {FIXED} {SCRIPT} {folder} gloo"
    wanted = {name: env[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS", "PATH")}
    job = kube_daemon.submit(words, env=wanted, gpus="2", gpus_per_worker=1)
    wait_until(lambda: {line.rank for line in lines_of(folder)} == {"0", "1"}, "a step of both")
    (folder / "finish").touch()
    assert kube_daemon.ends(job).state == "succeeded", kube_daemon.output(job)
