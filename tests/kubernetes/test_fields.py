"""Fields of jobs and settings, as seen from inside the pod."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.client import Client
from rota.client.http import AnswerError
from rota.engines.exit_reasons import OUT_OF_MEMORY
from tests.e2e.test_training import reports, said, train
from tests.kubernetes.cluster.api import Object, until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.layout import NODE
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon
from tests.kubernetes.support.shared_daemon import shared_namespace
from tests.kubernetes.support.volume_claims import volume_claim
from tests.kubernetes.support.worker_pods import resize
from tests.kubernetes.test_people import account_token
from tests.support.daemon_process import wait_until
from tests.support.processes import started

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
def shared(running_cluster: Cluster) -> Iterator[KubernetesDaemonProcess]:
    with (
        shared_namespace(running_cluster) as namespace,
        a_priority(running_cluster, namespace) as low,
    ):
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        running_cluster.api.create(accounts, {"metadata": {"name": "trainer"}})
        settings = {**SETTINGS, "ROTA_PRIORITY_CLASS": low}
        with kubernetes_daemon(running_cluster, namespace, **settings) as made:
            made.place.chmod(0o777)
            with (
                volume_claim(running_cluster, namespace, "work", folder=made.home / "volume"),
                volume_claim(running_cluster, namespace, "saved", folder=made.home / "saved"),
            ):
                yield made


@contextmanager
def a_priority(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A priority class for this namespace."""
    name, classes = f"{namespace}-low", "/apis/scheduling.k8s.io/v1/priorityclasses"
    cluster.api.create(classes, {"metadata": {"name": name}, "value": 4711})
    try:
        yield name
    finally:
        cluster.api.delete(f"{classes}/{name}")


def pod_of(kube_daemon: KubernetesDaemonProcess, job: str) -> Object:
    """The pod as the API server stored it."""
    [pod] = until(lambda: kube_daemon.pods(job), f"the pod of {job}")
    return pod


def found(kube_daemon: KubernetesDaemonProcess, job: str) -> dict[str, str]:
    """The output of the job."""
    assert kube_daemon.ends(job).state == "succeeded", kube_daemon.output(job)
    lines = kube_daemon.output(job).decode().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


@contextmanager
def forwarded(kube_daemon: KubernetesDaemonProcess, job: str, ports: str) -> Iterator[int]:
    """The local port that is forwarded."""
    command = kube_daemon.command("port-forward", job, ports)
    with started(**command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        told = re.match(r"forwarding 127\.0\.0\.1:(\d+) to port ", running.stdout.readline())
        assert told is not None
        yield int(told[1])


def test_a_worker_has_its_user_and_resources(kube_daemon: KubernetesDaemonProcess) -> None:
    job = kube_daemon.submit(
        LOOKS, gpus="1", cpus=0.5, memory="256MiB", env={"MINE": "$(HOME) a\tb"}
    )
    pod = pod_of(kube_daemon, job)
    seen = found(kube_daemon, job)
    assert (seen["Uid"].split(), seen["Gid"].split()) == (["4711"] * 4, ["4712"] * 4)
    assert {"4713", "4714"} <= set(seen["Groups"].split())
    assert (seen["NoNewPrivs"], int(seen["CapEff"], 16), int(seen["CapBnd"], 16)) == ("1", 0, 0)
    assert seen["Folder"] == str(kube_daemon.place)
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


def test_accounts_map_users_of_the_cluster(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    token = account_token(kube_daemon.cluster, kube_daemon.namespace)
    looks = kube_daemon.request("grep -E '^(Uid|Gid|NoNewPrivs)' /proc/self/status", gpus="0")
    with Client(kube_daemon.endpoint, token=token, takes_context=False) as client:
        job = client.submit(looks)
    seen = found(kube_daemon, job)
    assert kube_daemon.client.show(job).job.user == f"sa.{kube_daemon.namespace}.default"
    assert (seen["Uid"].split(), seen["Gid"].split()) == (["4720"] * 4, ["4721"] * 4)
    assert seen["NoNewPrivs"] == "1"


def test_next_job_reads_the_files_of_a_claim(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """For the whole claim, for a folder in it, and read-only."""
    mounts = ["pvc:work:/data:rw", "pvc:work/sets:/sets:rw"]
    job = kube_daemon.submit(
        "echo one > /data/first; echo two > /sets/second", gpus="0", mounts=mounts
    )
    assert kube_daemon.ends(job).state == "succeeded", kube_daemon.output(job)
    script = "cat /data/first /data/sets/second; : 2>&1 > /data/third"
    reader = kube_daemon.submit(script, gpus="0", mounts=["pvc:work:/data"])
    assert kube_daemon.ends(reader).state == "failed"
    read, two, refused = kube_daemon.output(reader).decode().splitlines()
    assert (read, two) == ("one", "two")
    assert "Read-only file system" in refused
    assert (kube_daemon.home / "volume" / "first").stat().st_uid == 4711


def test_a_job_restarts_at_another_size_from_its_checkpoint_on_a_claim(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    job = train(kube_daemon, gpus="1..2", mode="restart", hold=True)
    resize(kube_daemon, job, 1)
    kube_daemon.client.release(job)
    kube_daemon.allow("go-0")
    kube_daemon.says(job, "epoch 1")
    reports(kube_daemon, job, 1)
    resize(kube_daemon, job, 2)
    kube_daemon.says(job, "start 2 1 2 True", attempt=2)
    [pod] = wait_until(lambda: kube_daemon.live_pods(job), "its pod")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    resize(kube_daemon, job, 1)
    kube_daemon.says_like(job, "start", attempt=3)
    for epoch in range(1, 6):
        kube_daemon.allow(f"go-{epoch}")
    assert kube_daemon.ends(job).state == "succeeded", kube_daemon.output(job)
    assert len(kube_daemon.starts(job)) == 3
    assert said(kube_daemon, job)[-1] == (3, "end 0 1 2 3 4 5")
    assert (kube_daemon.home / "saved" / "root" / job).is_dir()


def test_node_folder_is_mounted_only_if_allowed(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    with pytest.raises(AnswerError, match="jobs may not mount the folder /etc of the nodes"):
        kube_daemon.submit("true", gpus="0", mounts=["/etc:/theirs"])
    assert "host_paths" in kube_daemon.rota("submit", "--mount", "/etc:/x", "--", "true").stderr
    (kube_daemon.home / "ours").mkdir()
    (kube_daemon.home / "ours" / "set").write_text("here")
    mounts = [f"{kube_daemon.home}/ours:/ours"]
    job = kube_daemon.submit("cat /ours/set", gpus="0", mounts=mounts)
    assert kube_daemon.ends(job).state == "succeeded"
    assert kube_daemon.output(job) == b"here"


def test_links_do_not_lead_out_of_a_node_folder(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    (kube_daemon.home / "way-out").symlink_to("/etc")
    job = kube_daemon.submit("ls /theirs", gpus="0", mounts=[f"{kube_daemon.home}/way-out:/theirs"])
    assert kube_daemon.ends(job).state == "failed"
    assert "subPath" in kube_daemon.why(job)
    assert kube_daemon.output(job) == b""


def test_port_is_reachable_by_address_and_through_the_daemon(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    server = f"exec {sys.executable} -m http.server 8080"
    place = {"kubernetes.io/hostname": NODE}
    job = kube_daemon.submit(
        f"echo hello > /tmp/page; cd /tmp; {server}", gpus="0", ports=["80:8080"], node_labels=place
    )
    kube_daemon.pod_runs(job)
    pod = pod_of(kube_daemon, job)
    [container] = pod["spec"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [8080]
    page = f"http://{pod['status']['podIP']}:8080/page"
    fetch = f"import urllib.request as r; print(r.urlopen('{page}').read().decode())"
    inside = kube_daemon.cluster.control
    until(lambda: inside.run(sys.executable, "-c", fetch) == "hello\n\n", "the page")
    with forwarded(kube_daemon, job, "0:8080") as port:
        there = fetch.replace(page, f"http://127.0.0.1:{port}/page")
        done = subprocess.run([sys.executable, "-c", there], capture_output=True, check=True)
        assert done.stdout == b"hello\n\n"


def test_worker_above_its_memory_limit_fails_with_the_reason(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    hungry = f"exec {sys.executable} -c 'bytearray(256 << 20)'"
    job = kube_daemon.submit(hungry, gpus="0", memory="64MiB")
    assert kube_daemon.ends(job).state == "failed"
    assert f"{OUT_OF_MEMORY}: the limit is {64 * MIB}" in kube_daemon.why(job)
    assert "--memory" in kube_daemon.rota("show", job).stdout


def test_job_with_an_invalid_container_configuration_fails_with_the_reason(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    (kube_daemon.home / "volume" / "file").touch()
    job = kube_daemon.submit("true", gpus="1", mounts=["pvc:work/file/folder:/data"])
    assert kube_daemon.ends(job).state == "failed"
    why = kube_daemon.why(job)
    assert "its container has an invalid configuration" in why
    assert "check that the secrets" in why
    assert not kube_daemon.client.status().gpus_held
