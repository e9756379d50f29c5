"""Torch jobs on real pods: they grow and shrink, lose workers, give way and go on."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import join

import pytest

from tests.counts import only_long
from tests.e2e.house import wait_until
from tests.e2e.live import LiveJob
from tests.e2e.test_ddp import EPOCHS, epochs_said, train
from tests.e2e.torchruns import Agents
from tests.integration.torchrun.agents import SCRIPT, TORCHRUN, environment, install, lines_of
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.outpost import Outpost, an_outpost
from tests.kubernetes.workers import delete, kill, resize, settles

pytestmark = only_long

FIXED = '--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:29400"'


@pytest.fixture
def outpost(whole_cluster: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(whole_cluster, namespace) as made:
        made.up()
        yield made


def test_a_live_job_grows_and_shrinks_and_outlives_its_pods(outpost: Outpost) -> None:
    job = LiveJob(outpost, gpus="1..3", hold=True)
    resize(outpost, job.id, 1)
    outpost.client.release(job.id)
    assert job.trains_with(1) == [0]
    resize(outpost, job.id, 3)
    assert job.trains_with(3) == [0, 1, 2]
    resize(outpost, job.id, 2)
    assert job.trains_with(2) == [0, 1]
    settles(outpost, job.id, 2)
    delete(outpost, job.id, 0)
    [first, second] = job.trains_with(2, without=[0])
    kill(outpost, job.id, first, pid=job.came()[first].pid)
    job.trains_with(2, without=[0, first])
    assert second in job.members()
    job.finishes()
    assert job.attempt() == 1


def test_plain_ddp_trains_on_two_pods_gives_way_and_goes_on(outpost: Outpost) -> None:
    job = train(outpost, "plain", "--seconds-per-epoch=1")
    wait_until(lambda: outpost.client.show(job).epochs_saved >= 2, "a checkpoint of two epochs")
    assert len(outpost.live_pods(job)) == 2
    high = outpost.submit("say came; await on", gpus="4", priority=9)
    outpost.says(high, "came")
    assert outpost.state_of(job) == "queued"
    outpost.allow("on")
    ended = outpost.ends(job)
    assert (ended.state, ended.attempt, ended.epochs_done) == ("succeeded", 2, EPOCHS)
    first, second = (epochs_said(outpost, job, attempt=attempt) for attempt in (1, 2))
    assert first + second == list(range(1, EPOCHS + 1))


def test_agents_of_torchrun_grow_and_shrink_and_are_outlived(outpost: Outpost) -> None:
    install(outpost.place / "installed")
    job = Agents(outpost, "gloo", installed=outpost.place / "installed")
    generation, [first, second] = job.grows_and_shrinks()
    kill(outpost, job.id, first, pid=job.pid(first))
    generation, agents = job.train(2, after=generation)
    assert first not in agents
    assert second in agents
    delete(outpost, job.id, second)
    _, [remaining, newcomer] = job.train(2, after=generation)
    assert remaining in agents
    assert newcomer not in [first, *agents]
    job.finishes()


def test_torchrun_meets_at_the_first_worker_without_names(outpost: Outpost) -> None:
    """Torch's own rendezvous, which tells the others where its first agent is."""
    folder = outpost.place / "run"
    folder.mkdir()
    path = str(Path(sys.executable).parent)
    env = {**environment(outpost.place), "OMP_NUM_THREADS": "1", "PATH": path}
    words = f"exec {join(TORCHRUN)} {FIXED} {SCRIPT} {folder} gloo"
    wanted = {name: env[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS", "PATH")}
    job = outpost.submit(words, env=wanted, gpus="2", gpus_per_worker=1)
    wait_until(lambda: {line.rank for line in lines_of(folder)} == {"0", "1"}, "a step of both")
    (folder / "finish").touch()
    assert outpost.ends(job).state == "succeeded", outpost.output(job)
