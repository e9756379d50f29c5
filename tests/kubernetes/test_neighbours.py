"""Hostile neighbours in the namespace of the jobs: a user with rights to everything there, hostile
objects, hostile programs and nodes that lie. The jobs of others run on, each once, and the daemon
stays healthy."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from rota.engines.interface import LogLimits
from rota.engines.kubernetes.pods import naming
from tests.kubernetes.cluster.api import RefusedError, until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.kwok_nodes import fake_node, in_parallel
from tests.kubernetes.cluster.layout import CARDS_PER_NODE, GPU_RESOURCE, NODE
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess
from tests.kubernetes.test_deploy import TRAINING_JOB, installed, rendered, run
from tests.support.daemon_process import wait_until
from tests.support.seed_counts import count
from tests.support.timeouts import PATIENCE_S

EVERYTHING = (
    "trainingjobs,trainingjobs/scale,pods,pods/status,pods/exec,pods/attach,pods/portforward"
    ",pods/eviction,pods/ephemeralcontainers,pods/resize,pods/proxy,secrets,leases.coordination.k8s.io"
)
EVE = "eve"
MAX_MEMORY_MIB = 400
REFUSED = "only the daemon may change what it created"


@pytest.fixture(scope="module")
def eve(shared: KubernetesDaemonProcess) -> Iterator[str]:
    """A user with all rights in the namespace of the jobs, where our policies are installed."""
    cluster, namespace = shared.cluster, shared.namespace
    with policies(cluster, namespace):
        grant = ["kubectl", "--namespace", namespace, "create"]
        run(cluster, *grant, "role", "all", "--verb=*", f"--resource={EVERYTHING}")
        run(cluster, *grant, "rolebinding", "all", "--role=all", f"--user={EVE}")
        secret = ("create", "secret", "generic", "rota-token-x", "--dry-run=server")
        until(lambda: REFUSED in as_eve(shared, *secret), "the policy of the daemon's objects")
        yield EVE


@contextmanager
def policies(cluster: Cluster, namespace: str) -> Iterator[None]:
    made = yaml.safe_load_all(rendered(cluster, "base", namespace))
    kept = [each for each in made if each["kind"].startswith("Validating")]
    with installed(cluster, namespace, yaml.safe_dump_all(kept)):
        yield


def as_eve(kube_daemon: KubernetesDaemonProcess, *words: str, given: Any = None) -> str:
    done = kube_daemon.ask_kubectl(f"--as={EVE}", *words, given=given)
    return done.stdout + done.stderr


def is_well(kube_daemon: KubernetesDaemonProcess) -> None:
    """The daemon has not ended, and runs the jobs of others."""
    assert kube_daemon.process is not None
    assert kube_daemon.process.poll() is None, kube_daemon.log()[-3000:]
    assert kube_daemon.readiness() == 200
    other = kube_daemon.submit("say came", gpus="1")
    assert kube_daemon.ends(other).state == "succeeded"
    assert len(kube_daemon.starts(other)) == 1
    assert not kube_daemon.overbooked()


def is_well_after_a_restart(kube_daemon: KubernetesDaemonProcess) -> None:
    """Without its disk: it finds only what is in the cluster."""
    kube_daemon.kill()
    kube_daemon.lose_disk()
    kube_daemon.give_up_lease()
    kube_daemon.up()
    is_well(kube_daemon)


def merge(**patch: Any) -> tuple[str, str]:
    return "--type=merge", f"--patch={json.dumps(patch)}"


@pytest.mark.usefixtures("eve")
def test_rights_in_the_namespace_do_not_reach_the_jobs_of_others(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    job = kube_daemon.submit("say came; await on", gpus="1")
    pod = kube_daemon.pod_runs(job)
    [secret] = secrets_of(kube_daemon)
    pods = f"/api/v1/namespaces/{kube_daemon.namespace}/pods"
    orphan = {"apiVersion": "v1", "kind": "Pod", "name": "none", "uid": "none"}
    image = {"containers": [{"name": "worker", "image": "other"}]}
    ended = {"phase": "Succeeded"}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    attempts: list[tuple[tuple[str, ...], Any]] = [
        (("delete", "pod", pod), None),
        (("delete", "--raw", pods), None),
        (("patch", "pod", pod, *merge(metadata={"finalizers": ["eve.example/x"]})), None),
        (("patch", "pod", pod, *merge(metadata={"ownerReferences": [orphan]})), None),
        (("patch", "pod", pod, *merge(metadata={"annotations": {"a": "b" * 100_000}})), None),
        (("patch", "pod", pod, "--type=strategic", f"--patch={json.dumps({'spec': image})}"), None),
        (("patch", "pod", pod, "--subresource=status", *merge(status=ended)), None),
        (("label", "pod", pod, "rota.dev/user=eve", "--overwrite"), None),
        (("create", "--raw", f"{pods}/{pod}/eviction", "-f", "-"), eviction),
        (("exec", pod, "--", "kill", "1"), None),
        (("attach", pod), None),
        (("delete", "secret", secret), None),
        (("delete", "secret", "rota-state"), None),
        (("patch", "secret", "rota-state", *merge(data={"key": "AAAA"})), None),
        (("create", "secret", "generic", "rota-token-x", "--from-literal=token=x"), None),
        (("delete", "lease", "rota"), None),
        (("patch", "lease", "rota", *merge(spec={"holderIdentity": EVE})), None),
    ]
    for words, given in attempts:
        said = as_eve(kube_daemon, *words, given=given)
        assert "only the daemon may" in said, (words[:4], said)
    for words in (
        ("delete", "tj", job),
        ("patch", "tj", job, *merge(spec={"hold": True})),
        ("patch", "tj", job, *merge(metadata={"finalizers": None})),
        ("patch", "tj", job, *merge(metadata={"ownerReferences": [orphan]})),
        ("scale", "tj", job, "--replicas=2"),
    ):
        assert "but this job" in as_eve(kube_daemon, *words)
    is_well(kube_daemon)
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert [each.words for each in kube_daemon.heard(job)] == ["came"]
    assert len(kube_daemon.starts(job)) == 1


def secrets_of(kube_daemon: KubernetesDaemonProcess) -> list[str]:
    path = f"/api/v1/namespaces/{kube_daemon.namespace}/secrets"
    names = [each["metadata"]["name"] for each in kube_daemon.cluster.api.items(path)]
    return [each for each in names if each.startswith(naming.TOKEN_SECRET_PREFIX)]


def test_the_owner_may_change_the_pods_of_a_job(
    kube_daemon: KubernetesDaemonProcess, eve: str
) -> None:
    job = kube_daemon.submit("say came; await on", gpus="1", retries=1)
    pod = kube_daemon.pod_runs(job)
    owner = kube_daemon.cluster.api.get(f"{kube_daemon.pods_path}/{pod}")["metadata"]["labels"]
    words = (f"--as={owner['rota.dev/user']}", "--as-group=" + eve)
    run(
        kube_daemon.cluster,
        *("kubectl", "--namespace", kube_daemon.namespace, "create", "rolebinding", "owner"),
        *("--role=all", f"--user={owner['rota.dev/user']}"),
    )
    assert "annotated" in kube_daemon.kubectl(*words, "annotate", "pod", pod, "a=b")
    assert "deleted" in kube_daemon.kubectl(*words, "delete", "pod", pod, "--wait=false")
    kube_daemon.says(job, "came", attempt=2)
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"


def nested(depth: int) -> str:
    return '{"f:x":' * depth + "{}" + "}" * depth


def test_objects_with_deep_metadata_do_not_end_the_daemon(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """Any user who may create a pod in any namespace can write them."""
    api = kube_daemon.cluster.api
    job = kube_daemon.submit("say came; await on", gpus="1")
    kube_daemon.says(job, "came")
    with kube_daemon.cluster.namespace() as elsewhere:
        pods = f"/api/v1/namespaces/{elsewhere}/pods"
        fields = {"fieldsType": "FieldsV1", "fieldsV1": "DEEP", "apiVersion": "v1"}
        managed = [fields | {"manager": "m", "operation": "Update", "time": "2026-01-01T00:00:00Z"}]
        containers = [{"name": "main", "image": "none"}]
        body = {
            "metadata": {"name": "deep", "managedFields": managed},
            "spec": {"schedulerName": "nobody", "containers": containers},
        }
        text = json.dumps(body).replace('"DEEP"', nested(9_000))
        api.exchange("POST", pods, text.encode())
        is_well(kube_daemon)
        is_well_after_a_restart(kube_daemon)
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert [each.words for each in kube_daemon.heard(job)] == ["came"]


def test_a_node_that_lies_about_its_gpus_is_used_as_far_as_it_can_be(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    api, node = kube_daemon.cluster.api, f"/api/v1/nodes/{NODE}"
    label = f"{GPU_RESOURCE}.memory"
    was = api.get(node)["metadata"]["labels"][label]
    try:
        for lie in ("1e308", "15E", "nan", "0"):
            api.patch(node, {"metadata": {"labels": {label: lie}}})
            is_well(kube_daemon)
        is_well_after_a_restart(kube_daemon)
    finally:
        api.patch(node, {"metadata": {"labels": {label: was}}})
    assert kube_daemon.client.status().gpus == CARDS_PER_NODE


@pytest.mark.parametrize("n_gpus", ["-1", "0.5", "9E", "1e400", "many"])
def test_no_job_starts_on_a_node_with_an_absurd_capacity(
    kube_daemon: KubernetesDaemonProcess, n_gpus: str
) -> None:
    """A node of its own, tainted, so that no other test uses it."""
    api, name = kube_daemon.cluster.api, f"liar-{kube_daemon.namespace}"
    liar = fake_node(name, 1)
    amounts = liar["status"]["capacity"] | {GPU_RESOURCE: n_gpus}
    liar["status"] = {"capacity": amounts, "allocatable": amounts}
    liar["spec"] = {"taints": [{"key": "rota.test/liar", "effect": "NoSchedule"}]}
    try:
        with suppress(RefusedError):
            api.create("/api/v1/nodes", liar)
        is_well(kube_daemon)
    finally:
        api.delete(f"/api/v1/nodes/{name}")


ABSURD: list[dict[str, Any]] = [
    {"gpus": "9" * 5000},
    {"gpus": 2**63 - 1},
    {"gpus": "1e308"},
    {"cpus": 1e308},
    {"memory": "9" * 400 + "EiB"},
    {"epochs": 1e308, "hours": -1e308},
    {"size": 2**63 - 1},
    {"env": {"A" * 70_000: "\x00\udfff"}},
    {"mounts": ["../../etc:/etc:rw", "/:/host:rw"]},
    {"workdir": "a" * 100_000},
    {"node_labels": {"a" * 500: "b" * 500}},
    {"name": "\u202e\x1b[2J" * 1000},
    {"retries": -(2**62)},
    {"image": "a" * 100_000},
]


@pytest.mark.usefixtures("eve")
def test_absurd_specs_are_refused_one_by_one(kube_daemon: KubernetesDaemonProcess) -> None:
    api, path = kube_daemon.cluster.api, objects_of(kube_daemon)
    refused = 0
    for number, spec in enumerate(ABSURD):
        name = f"absurd-{number}"
        meta = {"name": name, "labels": {"rota.dev/user": EVE}}
        body = TRAINING_JOB | {
            "metadata": meta,
            "spec": {"command": ["true"], "hold": True, **spec},
        }
        try:
            api.create(path, body)
        except RefusedError:
            refused += 1
            continue
        answer = status_of(kube_daemon, name)
        assert answer["state"] in ("refused", "held"), (spec, answer)
        assert answer["state"] == "held" or answer["reason"], spec
        api.delete(f"{path}/{name}")
    assert refused < len(ABSURD), "the API server refused some, and the daemon the others"
    is_well(kube_daemon)


def objects_of(kube_daemon: KubernetesDaemonProcess) -> str:
    return f"/apis/rota.dev/v1alpha1/namespaces/{kube_daemon.namespace}/trainingjobs"


def status_of(kube_daemon: KubernetesDaemonProcess, name: str) -> Any:
    """The first status of an object that a user created."""
    path = f"{objects_of(kube_daemon)}/{name}"
    return until(lambda: kube_daemon.cluster.api.get(path).get("status"), f"a status of {name}")


def training_job(name: str, user: str, *, note: str = "", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "labels": {"rota.dev/user": user}, "annotations": {"note": note}}
    return TRAINING_JOB | {"metadata": meta, "spec": {"command": ["true"], "hold": True, **spec}}


def test_thousands_of_large_objects_of_one_user_do_not_delay_others(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """The daemon finds all of them when it starts. Its memory stays small."""
    n, n_large, limit_s = count(2_000), count(400), 5 * PATIENCE_S
    api, path = kube_daemon.cluster.api, objects_of(kube_daemon)
    kube_daemon.kill()
    notes = {f"flood-{number}": "x" * 250_000 for number in range(n_large)}
    names = [f"flood-{number}" for number in range(n)]
    try:
        in_parallel(
            lambda name: api.create(path, training_job(name, EVE, note=notes.get(name, ""))), names
        )
        api.create(path, training_job("zz-mine", "ann"))
        kube_daemon.give_up_lease()
        kube_daemon.up()
        status_of(kube_daemon, "zz-mine")
        accepted = [each for each in api.items(path) if "status" in each]
        assert len(accepted) < n / 2, "it was among the first"
        is_well(kube_daemon)
        until(
            lambda: all("status" in each for each in api.items(path)), "the rest", limit_s=limit_s
        )
        assert memory_mib(kube_daemon) < MAX_MEMORY_MIB
        is_well_after_a_restart(kube_daemon)
        assert memory_mib(kube_daemon) < MAX_MEMORY_MIB
    finally:
        in_parallel(lambda name: api.delete(f"{path}/{name}"), [*names, "zz-mine"])
        until(lambda: not names_of(api.items(path)) & {*names}, "all to go", limit_s=limit_s)


def names_of(objects: list[dict[str, Any]]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


def memory_mib(kube_daemon: KubernetesDaemonProcess) -> float:
    """The most memory that the daemon has used."""
    assert kube_daemon.process is not None
    text = Path(f"/proc/{kube_daemon.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", text)[0]) / 1024


def test_an_object_with_a_finalizer_that_never_goes_holds_no_gpu(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    api, path = kube_daemon.cluster.api, objects_of(kube_daemon)
    body = training_job("stays", EVE, hold=False, command=["sleep", "1000"], gpus="1")
    body["metadata"]["finalizers"] = ["eve.example/never"]
    api.create(path, body)
    job = until(lambda: status_of(kube_daemon, "stays").get("id"), "its job")
    pod = kube_daemon.pod_runs(job)
    finalizers = {"metadata": {"finalizers": ["eve.example/never", naming.FINALIZER]}}
    api.patch(f"{kube_daemon.pods_path}/{pod}", finalizers)
    api.delete(f"{path}/stays")
    assert kube_daemon.ends(job).state == "cancelled"
    until(kube_daemon.has_room, "the GPUs to be free")
    is_well(kube_daemon)
    is_well_after_a_restart(kube_daemon)
    assert api.get(f"{path}/stays")["metadata"]["finalizers"] == ["eve.example/never"]
    api.patch(f"{path}/stays", {"metadata": {"finalizers": None}})
    again = training_job("stays", EVE, hold=False, gpus="0", command=["sleep", "0"])
    until(lambda: api.create(path, again), "the name to be free")
    second = until(lambda: status_of(kube_daemon, "stays").get("id"), "another job")
    assert second != job
    kube_daemon.ends(second)


def test_a_new_object_with_the_name_of_a_removed_one_is_another_job(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """Also if the first one was removed by force while its job ran."""
    api, path = kube_daemon.cluster.api, objects_of(kube_daemon)
    ids: list[str] = []
    for _ in range(3):
        body = training_job("same", EVE, hold=False, command=["sleep", "1000"], gpus="1")
        api.create(path, body)
        ids.append(until(lambda: status_of(kube_daemon, "same").get("id"), "its job"))
        kube_daemon.pod_runs(ids[-1])
        api.patch(f"{path}/same", {"metadata": {"finalizers": None}})
        api.delete(f"{path}/same")
    assert len({*ids}) == len(ids)
    for each in ids:
        assert kube_daemon.ends(each).state == "cancelled"
    until(kube_daemon.has_room, "the GPUs to be free")
    is_well(kube_daemon)


def plain_pod(name: str, user: str, *, gpus: int = 0, **meta: Any) -> dict[str, Any]:
    body = python_pod(name, "import time; time.sleep(1000)", gpus=gpus)
    body["spec"]["schedulerName"] = "rota"
    body["metadata"] |= {"labels": {"user": user}} | meta
    return body


def test_a_pod_cannot_become_the_worker_of_another_job(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """With every right and without the policies: an administrator creates these pods."""
    api, pods = kube_daemon.cluster.api, kube_daemon.pods_path
    job = kube_daemon.submit("say came; await on; exit 200", gpus="1", retries=3)
    kube_daemon.says(job, "came")
    made = api.create(pods, plain_pod("aa-forged", EVE, gpus=1))
    for attempt in (1, 2, 3):
        placed = f"{job}/{attempt}/0/{made['metadata']['uid']}"
        forged = {naming.PLACED: placed, naming.GPUS: "0,1,2,3"}
        api.patch(f"{pods}/aa-forged", {"metadata": {"annotations": forged}})
        if attempt == 2:
            is_well_after_a_restart(kube_daemon)
    kube_daemon.allow("on")
    wait_until(lambda: len(kube_daemon.heard(job)) == 4, "all attempts of the program itself")
    assert kube_daemon.ends(job).state == "failed"
    api.delete(f"{pods}/aa-forged", grace_s=1)
    is_well(kube_daemon)


def test_output_without_newlines_is_bounded(kube_daemon: KubernetesDaemonProcess) -> None:
    """In the memory and on the disk of the daemon, while others are served."""
    n_bytes = count(2_000) * 1_000_000
    flood = f"head -c {n_bytes} /dev/zero | tr '\\0' x; say wrote; await on"
    job = kube_daemon.submit(flood, gpus="1")
    wait_until(lambda: disk_mib(kube_daemon, job) > 1, "its first output")
    is_well(kube_daemon)
    kube_daemon.says(job, "wrote")
    is_well(kube_daemon)
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert memory_mib(kube_daemon) < MAX_MEMORY_MIB
    limits = LogLimits()
    most_bytes = limits.files * limits.file_bytes
    assert disk_mib(kube_daemon, job) < 1.1 * most_bytes / 2**20


def disk_mib(kube_daemon: KubernetesDaemonProcess, job: str) -> float:
    folder = kube_daemon.state / "engine-kubernetes" / job
    return sum(each.stat().st_size for each in folder.glob("**/*") if each.is_file()) / 2**20


def test_a_program_that_forks_ends_with_its_pod(kube_daemon: KubernetesDaemonProcess) -> None:
    """Also children in sessions of their own that ignore SIGTERM."""
    forks = "trap '' TERM; for n in $(seq 200); do setsid sh -c \"trap '' TERM; sleep 1000\" & done"
    job = kube_daemon.submit(f"{forks}; say forked; await never", gpus="1", grace="1s")
    kube_daemon.says(job, "forked")
    wait_until(lambda: len(kube_daemon.left()) > 200, "all of them")
    is_well(kube_daemon)
    kube_daemon.client.cancel(job)
    assert kube_daemon.ends(job).state == "cancelled"
    wait_until(lambda: not kube_daemon.left(), "all of them to end")
    until(kube_daemon.has_room, "the GPUs to be free")


def test_the_token_of_a_job_is_good_for_this_job_only(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """From any pod: whoever has it acts for this job, as long as its attempt runs."""
    other = kube_daemon.submit("say came; await on", gpus="1")
    job = kube_daemon.submit('printenv ROTA_TOKEN > "$HERE/token"; say came; await on', gpus="1")
    kube_daemon.says(job, "came")
    kube_daemon.says(other, "came")
    token = (kube_daemon.place / "token").read_text().strip()

    def code(method: str, path: str, **body: Any) -> int:
        url, headers = f"{kube_daemon.endpoint.url}{path}", {"Authorization": f"Bearer {token}"}
        return httpx2.request(method, url, headers=headers, json=body or None).status_code

    for method, path, body in (
        ("POST", "/v1/jobs", {"command": ["true"]}),
        ("GET", f"/v1/jobs/{other}", {}),
        ("GET", f"/v1/jobs/{other}/log", {}),
        ("POST", f"/v1/jobs/{other}/cancel", {}),
        ("GET", "/v1/nodes", {}),
    ):
        assert code(method, path, **body) in (401, 403, 404), (method, path)
    headers = {"Authorization": f"Bearer {token}"}
    listed = httpx2.get(f"{kube_daemon.endpoint.url}/v1/jobs", headers=headers).json()["jobs"]
    assert [each["id"] for each in listed] == [job]
    assert code("GET", f"/v1/jobs/{job}") == 200
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert kube_daemon.ends(other).state == "succeeded"
    assert code("GET", f"/v1/jobs/{job}") == 401
