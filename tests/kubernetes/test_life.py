"""Jobs on real pods, from the command line to the cluster and back."""

import sys
from collections.abc import Iterator

import pytest

from rota.wire.jobs import JobRequest
from tests.e2e.house import wait_until
from tests.e2e.live import LiveJob
from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.outpost import Outpost
from tests.kubernetes.shared import a_shared_outpost, a_turn
from tests.tidy.tree import ROOT

ALL = "4"
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
def shared(running_cluster: Cluster) -> Iterator[Outpost]:
    with a_shared_outpost(running_cluster) as made:
        yield made


@pytest.fixture
def outpost(shared: Outpost) -> Iterator[Outpost]:
    with a_turn(shared) as ours:
        yield ours


def test_a_job_is_read_visited_and_remembered(outpost: Outpost) -> None:
    words = ["--gpus", "1", "--workdir", str(outpost.place), "--env", f"HERE={outpost.place}"]
    script = 'echo begun; until [ -e "$HERE/on" ]; do sleep 0.1; done; echo done; exit 3'
    submitted = outpost.rota("submit", *words, "--", "/bin/sh", "-c", script)
    job = submitted.stdout.strip()
    pod = outpost.pod_runs(job)
    wait_until(lambda: outpost.rota("logs", job).stdout == "begun\n", "its first line")
    echo = "echo $ROTA_JOB $NVIDIA_VISIBLE_DEVICES"
    seen = outpost.rota("exec", job, "--", "/bin/sh", "-c", echo)
    assert seen.stdout.startswith(f"{job} GPU-0000")
    outpost.allow("on")
    assert outpost.rota("wait", job).returncode == 3
    outpost.kubectl("delete", "pod", pod, "--timeout=60s")
    assert outpost.pods(job) == []
    assert outpost.rota("logs", job).stdout == "begun\ndone\n"
    assert "exit code 3" in outpost.status_of(job)["reason"]
    assert outpost.has_room()


def test_a_training_gives_way_and_goes_on_where_it_was(outpost: Outpost) -> None:
    example = [sys.executable, str(ROOT / "examples" / "numpy_model.py")]
    command = [*example, "--epochs", "6", "--seconds-per-epoch", "1"]
    env = {"PYTHONPATH": str(ROOT / "trainer" / "src")}
    low = outpost.client.submit(JobRequest(command, env=env, workdir="/", gpus=ALL))
    wait_until(lambda: outpost.client.show(low).job.progress, "its first epoch")
    high = outpost.submit("say came; await on", gpus="1", priority=9)
    outpost.says(high, "came")
    assert outpost.state_of(low) == "queued"
    assert [each["metadata"]["labels"]["rota.dev/job"] for each in outpost.live_pods()] == [high]
    outpost.allow("on")
    assert outpost.ends(low).state == "succeeded"
    before, after = (outpost.rota("logs", low, "--attempt", each).stdout for each in "12")
    assert set(before.splitlines()).isdisjoint(after.splitlines())
    assert len((before + after).splitlines()) == 6


def test_workers_find_each_other_and_each_has_a_card(outpost: Outpost) -> None:
    command = [sys.executable, "-c", MEETING]
    job = outpost.client.submit(JobRequest(command, workdir="/", gpus="2", gpus_per_worker=1))
    assert outpost.ends(job).state == "succeeded", outpost.output(job)
    assert outpost.output(job) == b"2 cards\n"


def test_a_live_training_grows_and_shrinks(outpost: Outpost) -> None:
    other = outpost.submit("say came; await first", gpus="3")
    outpost.says(other, "came")
    job = LiveJob(outpost, gpus="1..2")
    job.trains_with(1)
    outpost.allow("first")
    job.trains_with(2)
    until(lambda: len(outpost.live_pods(job.id)) == 2, "its two pods")
    assert outpost.rota("resize", job.id, "1").returncode == 0
    job.trains_with(1)
    until(lambda: len(outpost.live_pods(job.id)) == 1, "one of its pods to end")
    job.finishes_early()
    assert outpost.client.show(job.id).job.attempt == 1
