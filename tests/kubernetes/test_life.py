"""Jobs on real pods, from the command line to the cluster and back."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime

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
def shared(running_cluster: Cluster) -> Iterator[Outpost]:
    limits = {"ROTA_LOG_SIZE": f"{LOG_BYTES}", "ROTA_LOG_FILES": f"{LOG_FILES}"}
    with a_shared_outpost(running_cluster, **limits) as made:
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
    assert cards_of(outpost, job) == [seen.stdout.split()[1]]
    outpost.allow("on")
    assert outpost.rota("wait", job).returncode == 3
    outpost.kubectl("delete", "pod", pod, "--timeout=60s")
    assert outpost.pods(job) == []
    assert outpost.rota("logs", job).stdout == "begun\ndone\n"
    assert "exit code 3" in outpost.status_of(job)["reason"]
    assert outpost.has_room()


def test_what_is_kept_of_a_long_output_is_its_end(outpost: Outpost) -> None:
    lines = [f"line {number}" for number in range(10_000)]
    code = "for n in range(10_000): print('line', n)"
    job = outpost.client.submit(JobRequest([sys.executable, "-c", code], workdir="/", gpus="0"))
    assert outpost.ends(job).state == "succeeded"
    wait_until(lambda: outpost.output(job).endswith(b"line 9999\n"), "its last line")
    kept = outpost.output(job)
    assert LOG_BYTES < len(kept) <= LOG_FILES * LOG_BYTES
    assert kept.decode().splitlines() == lines[-len(kept.splitlines()) :]
    folder = outpost.state / "engine-kubernetes" / job
    files = [each for each in folder.rglob("worker-0.log*") if "times" not in each.name]
    assert sum(each.stat().st_size for each in files) == len(kept)


def test_a_training_gives_way_and_goes_on_where_it_was(outpost: Outpost) -> None:
    example = [sys.executable, str(ROOT / "examples" / "numpy_model.py")]
    command = [*example, "--epochs", "6", "--seconds-per-epoch", "1"]
    env = {"PYTHONPATH": str(ROOT / "trainer" / "src")}
    low = outpost.client.submit(JobRequest(command, env=env, workdir="/", gpus=ALL))
    wait_until(lambda: outpost.client.show(low).job.progress, "its first epoch")
    high = outpost.submit("say came; await on", gpus="1", priority=9, hours=0.1)
    outpost.says(high, "came")
    assert outpost.state_of(low) == "queued"
    progress, finish = until(lambda: how_far(outpost, low), "its progress and its end")
    assert 0 < progress < 1
    assert finish > datetime.now(UTC)
    assert [each["metadata"]["labels"]["rota.dev/job"] for each in outpost.live_pods()] == [high]
    outpost.allow("on")
    assert outpost.ends(low).state == "succeeded"
    before, after = (outpost.rota("logs", low, "--attempt", each).stdout for each in "12")
    assert set(before.splitlines()).isdisjoint(after.splitlines())
    assert len((before + after).splitlines()) == 6


def cards_of(outpost: Outpost, job: str) -> list[str]:
    """Those that the device plugin picked for its one worker."""
    [worker] = outpost.client.show(job).attempts[-1].workers
    return worker.cards


def how_far(outpost: Outpost, job: str) -> tuple[float, datetime] | None:
    """As its object tells, and `kubectl get` shows."""
    status = outpost.status_of(job)
    finish = status.get("expectedFinish")
    return (status["progress"], datetime.fromisoformat(finish)) if finish else None


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
    job.finishes()
    assert outpost.client.show(job.id).job.attempt == 1
