"""What a job and the settings ask of a pod, as the pod itself finds it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.client import Client
from rota.client.http import AnswerError
from rota.engines.words import OUT_OF_MEMORY
from tests.e2e.house import wait_until
from tests.e2e.test_training import reports, said, train
from tests.kubernetes.claims import a_claim
from tests.kubernetes.cluster.api import Object, until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.places import NODE
from tests.kubernetes.outpost import Outpost, an_outpost
from tests.kubernetes.shared import a_namespace, a_turn
from tests.kubernetes.test_people import account_token
from tests.kubernetes.workers import resize

MIB = 2**20
SETTINGS = {
    "ROTA_CHECKPOINTS": "pvc:saved/{user}/{job}",
    "ROTA_ACCOUNTS": "root=4711:4712:4713+4714,*=4720:4721",
    "ROTA_SERVICE_ACCOUNT": "trainer",
    "ROTA_PULL_SECRETS": "first,second",
}
LOOKS = """
grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapEff|CapBnd)' /proc/self/status
echo "Folder: $(pwd)"
echo "Shared: $(df --block-size=1 --output=size /dev/shm | tail -1)"
cd /sys/fs/cgroup
echo "Memory: $(cat memory/memory.limit_in_bytes memory.max 2>/dev/null)"
echo "Quota: $(cat cpu/cpu.cfs_quota_us cpu.max 2>/dev/null)"
echo "Mine: $MINE"
echo "Token: $(ls /var/run/secrets 2>/dev/null)"
"""


@pytest.fixture(scope="module")
def shared(running_cluster: Cluster) -> Iterator[Outpost]:
    with a_namespace(running_cluster) as namespace, a_priority(running_cluster, namespace) as low:
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        running_cluster.api.create(accounts, {"metadata": {"name": "trainer"}})
        settings = {**SETTINGS, "ROTA_PRIORITY_CLASS": low}
        with an_outpost(running_cluster, namespace, **settings) as made:
            made.place.chmod(0o777)
            with (
                a_claim(running_cluster, namespace, "work", folder=made.home / "volume"),
                a_claim(running_cluster, namespace, "saved", folder=made.home / "saved"),
            ):
                yield made


@contextmanager
def a_priority(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A class that only this namespace knows of."""
    name, classes = f"{namespace}-low", "/apis/scheduling.k8s.io/v1/priorityclasses"
    cluster.api.create(classes, {"metadata": {"name": name}, "value": 4711})
    try:
        yield name
    finally:
        cluster.api.delete(f"{classes}/{name}")


@pytest.fixture
def outpost(shared: Outpost) -> Iterator[Outpost]:
    with a_turn(shared) as turn:
        yield turn


def pod_of(outpost: Outpost, job: str) -> Object:
    """As the API server took it."""
    [pod] = until(lambda: outpost.pods(job), f"the pod of {job}")
    return pod


def found(outpost: Outpost, job: str) -> dict[str, str]:
    """What the job saw, by its name."""
    assert outpost.ends(job).state == "succeeded", outpost.output(job)
    lines = outpost.output(job).decode().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


@contextmanager
def forwarded(outpost: Outpost, job: str, ports: str) -> Iterator[int]:
    """The port of this machine that leads there."""
    command = outpost.command("port-forward", job, ports)
    with subprocess.Popen(**command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        told = re.match(r"127\.0\.0\.1:(\d+) ", running.stdout.readline())
        assert told is not None
        yield int(told[1])
        running.terminate()


def test_a_worker_is_who_and_has_what_it_should(outpost: Outpost) -> None:
    job = outpost.submit(LOOKS, gpus="1", cpus=0.5, memory="256MiB", env={"MINE": "$(HOME) a\tb"})
    pod = pod_of(outpost, job)
    seen = found(outpost, job)
    assert (seen["Uid"].split(), seen["Gid"].split()) == (["4711"] * 4, ["4712"] * 4)
    assert {"4713", "4714"} <= set(seen["Groups"].split())
    assert (seen["NoNewPrivs"], int(seen["CapEff"], 16), int(seen["CapBnd"], 16)) == ("1", 0, 0)
    assert seen["Folder"] == str(outpost.place)
    assert (int(seen["Shared"]), int(seen["Memory"])) == (128 * MIB, 256 * MIB)
    assert seen["Quota"].split()[0] == "50000"
    assert seen["Mine"] == "$(HOME) a\tb"
    assert seen["Token"] == ""
    spec = pod["spec"]
    [resources] = [each["resources"] for each in spec["containers"]]
    wanted = {"cpu": "500m", "memory": str(256 * MIB), "nvidia.com/gpu": "1"}
    assert (resources["requests"], resources["limits"]) == (wanted, wanted)
    assert (spec["priority"], spec["serviceAccountName"]) == (4711, "trainer")
    assert spec["imagePullSecrets"] == [{"name": "first"}, {"name": "second"}]


def test_a_user_whom_only_the_cluster_knows_runs_as_the_settings_say(outpost: Outpost) -> None:
    token = account_token(outpost.cluster, outpost.namespace)
    looks = outpost.request("grep -E '^(Uid|Gid|NoNewPrivs)' /proc/self/status", gpus="0")
    with Client(f"http://{outpost.listen}", token=token) as client:
        job = client.submit(looks)
    seen = found(outpost, job)
    assert outpost.client.show(job).job.user == f"sa.{outpost.namespace}.default"
    assert (seen["Uid"].split(), seen["Gid"].split()) == (["4720"] * 4, ["4721"] * 4)
    assert seen["NoNewPrivs"] == "1"


def test_what_one_job_writes_to_a_claim_the_next_one_reads(outpost: Outpost) -> None:
    """Of the claim as a whole, of a folder in it, and only to be read."""
    mounts = ["pvc:work:/data:rw", "pvc:work/sets:/sets:rw"]
    job = outpost.submit("echo one > /data/first; echo two > /sets/second", gpus="0", mounts=mounts)
    assert outpost.ends(job).state == "succeeded", outpost.output(job)
    script = "cat /data/first /data/sets/second; : 2>&1 > /data/third"
    reader = outpost.submit(script, gpus="0", mounts=["pvc:work:/data"])
    assert outpost.ends(reader).state == "failed"
    read, two, refused = outpost.output(reader).decode().splitlines()
    assert (read, two) == ("one", "two")
    assert "Read-only file system" in refused
    assert (outpost.home / "volume" / "first").stat().st_uid == 4711


def test_a_job_restarts_at_another_size_from_its_checkpoint_on_a_claim(outpost: Outpost) -> None:
    job = train(outpost, gpus="1..2", mode="restart", hold=True)
    resize(outpost, job, 1)
    outpost.client.release(job)
    outpost.allow("go-0")
    outpost.says(job, "epoch 1")
    reports(outpost, job, 1)
    resize(outpost, job, 2)
    outpost.says(job, "start 2 1 2 True", attempt=2)
    wait_until(lambda: len(outpost.live_pods(job)) == 2, "both of its pods")
    resize(outpost, job, 1)
    outpost.says_like(job, "start", attempt=3)
    for epoch in range(1, 6):
        outpost.allow(f"go-{epoch}")
    assert outpost.ends(job).state == "succeeded", outpost.output(job)
    assert len(outpost.starts(job)) == 3
    assert said(outpost, job)[-1] == (3, "end 0 1 2 3 4 5")
    assert (outpost.home / "saved" / "root" / job).is_dir()


def test_a_folder_of_the_node_is_mounted_only_where_that_is_allowed(outpost: Outpost) -> None:
    with pytest.raises(AnswerError, match="/etc is no folder of the nodes that jobs may mount"):
        outpost.submit("true", gpus="0", mounts=["/etc:/theirs"])
    assert "host_paths" in outpost.rota("submit", "--mount", "/etc:/x", "--", "true").stderr
    (outpost.home / "ours").mkdir()
    (outpost.home / "ours" / "set").write_text("here")
    mounts = [f"{outpost.home}/ours:/ours"]
    job = outpost.submit("cat /ours/set", gpus="0", mounts=mounts)
    assert outpost.ends(job).state == "succeeded"
    assert outpost.output(job) == b"here"


def test_a_link_in_a_folder_of_the_node_leads_nobody_out_of_it(outpost: Outpost) -> None:
    (outpost.home / "way-out").symlink_to("/etc")
    job = outpost.submit("ls /theirs", gpus="0", mounts=[f"{outpost.home}/way-out:/theirs"])
    assert outpost.ends(job).state == "failed"
    assert "subPath" in outpost.why(job)
    assert outpost.output(job) == b""


def test_a_port_is_reached_by_address_and_through_the_daemon(outpost: Outpost) -> None:
    server = f"exec {sys.executable} -m http.server 8080"
    place = {"kubernetes.io/hostname": NODE}
    job = outpost.submit(
        f"echo hello > /tmp/page; cd /tmp; {server}", gpus="0", ports=["80:8080"], node_labels=place
    )
    outpost.pod_runs(job)
    pod = pod_of(outpost, job)
    [container] = pod["spec"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [8080]
    page = f"http://{pod['status']['podIP']}:8080/page"
    fetch = f"import urllib.request as r; print(r.urlopen('{page}').read().decode())"
    inside = outpost.cluster.control
    until(lambda: inside.run(sys.executable, "-c", fetch) == "hello\n\n", "the page")
    with forwarded(outpost, job, "0:8080") as port:
        there = fetch.replace(page, f"http://127.0.0.1:{port}/page")
        done = subprocess.run([sys.executable, "-c", there], capture_output=True, check=True)
        assert done.stdout == b"hello\n\n"


def test_a_worker_that_uses_more_memory_than_it_asked_for(outpost: Outpost) -> None:
    hungry = f"exec {sys.executable} -c 'bytearray(256 << 20)'"
    job = outpost.submit(hungry, gpus="0", memory="64MiB")
    assert outpost.ends(job).state == "failed"
    assert f"{OUT_OF_MEMORY}: the limit is {64 * MIB}" in outpost.why(job)
    assert "--memory" in outpost.rota("show", job).stdout


def test_a_container_that_cannot_be_made_as_described(outpost: Outpost) -> None:
    (outpost.home / "volume" / "file").touch()
    job = outpost.submit("true", gpus="1", mounts=["pvc:work/file/folder:/data"])
    assert outpost.ends(job).state == "failed"
    why = outpost.why(job)
    assert "its container cannot be made as described" in why
    assert "is not there as it says" in why
    assert not outpost.client.status().gpus_held
