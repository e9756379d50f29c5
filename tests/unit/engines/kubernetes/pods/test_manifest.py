"""The pods of a command."""

from dataclasses import replace

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.commands import ChangeMembership, StartWorkers
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.engines.interface import Mount, Program, UnixAccount, WorkerLimits
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.manifest import grace_s, pod_of, ungate_patch
from rota.engines.kubernetes.pods.placement import placements
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.resources import Object

NODE = NodeId("n1")
SETTINGS = KubernetesSettings()


def pods(
    program: Program, *slots: Slot, settings: KubernetesSettings = SETTINGS, attempt: int = 1
) -> list[Object]:
    command = StartWorkers(JobId("job"), attempt, 0, slots)
    return [pod_of(placement, program, settings=settings) for placement in placements(command)]


def env_of(pod: Object) -> dict[str, str]:
    """Values, or in angle brackets where they are found when the container starts."""
    named = pod["spec"]["containers"][0]["env"]
    assert len({each["name"] for each in named}) == len(named), "a name that is there twice"
    return {
        each["name"]: each["value"]
        if "value" in each
        else f"<{each['valueFrom']['fieldRef']['fieldPath']}>"
        for each in named
        if "secretKeyRef" not in each.get("valueFrom", {})
    }


def resources_of(pod: Object) -> Object:
    return pod["spec"]["containers"][0]["resources"]


def test_ranks_and_master_address() -> None:
    first, second = map(env_of, pods(Program(("p",)), Slot(NODE, (0,)), Slot(NODE, (1,))))
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert first["WORLD_SIZE"] == second["WORLD_SIZE"] == "2"
    assert first["LOCAL_RANK"] == second["LOCAL_RANK"] == "0"
    assert first["MASTER_ADDR"] == first["ROTA_HOST"] == "<status.podIP>"
    assert first["PET_LOCAL_ADDR"] == second["PET_LOCAL_ADDR"] == "<status.podIP>"
    assert second["MASTER_ADDR"] == "<metadata.annotations['rota.dev/master-addr']>"
    assert "ROTA_RESTARTED" not in first


def test_a_single_pod_gets_no_world_size() -> None:
    [pod] = pods(Program(("p",)), Slot(NODE, (0, 1)))
    env = env_of(pod)
    assert not {"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"} & env.keys()
    assert (env["RANK"], env["ROTA_PROCESSES"]) == ("0", "1")
    assert (env["NUM_GPUS"], env["ROTA_GPUS"], env["ROTA_NODES"]) == ("2", "2", "1")


def test_pods_know_the_size_of_their_job() -> None:
    slots = Slot(NODE, (0, 1)), Slot(NodeId("other"), (4,))
    first, second = map(env_of, pods(Program(("p",)), *slots))
    assert (first["NUM_GPUS"], second["NUM_GPUS"]) == ("2", "1")
    assert first["ROTA_GPUS"] == second["ROTA_GPUS"] == "3"
    assert first["ROTA_NODES"] == second["ROTA_PROCESSES"] == "2"


def test_a_new_worker_has_number_and_rank_of_the_change() -> None:
    command = ChangeMembership(JobId("job"), 2, 3, (Slot(NODE, (0,)), Slot(NODE, (1,))), (1, 4))
    pod = pod_of(placements(command)[1], Program(("p",)), settings=SETTINGS)
    assert pod["metadata"]["name"] == "rota-job-a2-g3-w4"
    env = env_of(pod)
    assert (env["RANK"], env["ROTA_GENERATION"], env["ROTA_RESTARTED"]) == ("1", "3", "1")


def test_whole_gpus_use_the_configured_resource() -> None:
    slot = Slot(NODE, (2, 5))
    [pod] = pods(Program(("p",), limits=WorkerLimits(1.5, GIB)), slot)
    wanted = {"cpu": "1500m", "memory": str(GIB), "nvidia.com/gpu": "2"}
    assert resources_of(pod) == {"requests": wanted, "limits": wanted}
    assert pod["metadata"]["annotations"][naming.GPUS] == "2,5"
    [other] = pods(Program(("p",)), slot, settings=KubernetesSettings(gpu_resource="amd.com/gpu"))
    assert resources_of(other)["limits"] == {"amd.com/gpu": "2"}


def test_a_sharing_worker_requests_no_gpu_and_gets_an_id() -> None:
    [pod] = pods(Program(("p",)), Slot(NODE, (3,), share_bytes=6 * GIB, fraction=0.5))
    assert resources_of(pod) == {}
    env = env_of(pod)
    assert env["NVIDIA_VISIBLE_DEVICES"] == "<metadata.annotations['rota.dev/card']>"
    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"]
    assert env["ROTA_GPU_MEMORY_BYTES"] == str(6 * GIB)


def test_a_worker_without_gpus_sees_none() -> None:
    [pod] = pods(Program(("p",)), Slot(NODE))
    env = env_of(pod)
    assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")


def test_variables_of_the_engine_override_those_of_the_job() -> None:
    env = {"RANK": "9", "MASTER_ADDR": "elsewhere", "MINE": "mine"}
    [pod] = pods(Program(("p",), env), Slot(NODE))
    assert env_of(pod)["RANK"] == "0"
    assert env_of(pod)["MASTER_ADDR"] == "<status.podIP>"
    assert env_of(pod)["MINE"] == "mine"


def test_dollar_signs_are_escaped() -> None:
    [pod] = pods(Program(("sh", "-c", "echo $(RANK) $$"), {"X": "$(HOME)"}), Slot(NODE))
    assert pod["spec"]["containers"][0]["args"] == ["sh", "-c", "echo $$(RANK) $$$$"]
    assert env_of(pod)["X"] == "$$(HOME)"


def test_a_worker_has_the_ids_of_its_submitter_only() -> None:
    account = UnixAccount("ada", "/home/ada", uid=1000, gid=100, groups=(100, 27))
    [pod] = pods(Program(("p",), account=account), Slot(NODE))
    rights = pod["spec"]["securityContext"]
    assert (rights["runAsUser"], rights["runAsGroup"], rights["runAsNonRoot"]) == (1000, 100, True)
    assert rights["supplementalGroups"] == [100, 27]
    inside = pod["spec"]["containers"][0]["securityContext"]
    assert inside == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["metadata"]["labels"][naming.USER] == "ada"


def test_a_pod_has_a_gate_and_a_finalizer() -> None:
    [pod] = pods(Program(("p",)), Slot(NODE))
    assert pod["spec"]["schedulingGates"] == [{"name": "rota.dev/plan"}]
    assert pod["metadata"]["finalizers"] == ["rota.dev/ending"]
    assert pod["spec"]["restartPolicy"] == "Never"


def test_removing_the_gate_selects_one_node() -> None:
    slot = Slot(NodeId("n1"), (0, 3))
    patch = ungate_patch(slot, uid="u1", notes={"rota.dev/master-addr": "10.0.0.1"})
    assert patch["spec"]["schedulingGates"] is None
    rule = patch["spec"]["affinity"]["nodeAffinity"]
    [term] = rule["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert patch["metadata"] == {
        "uid": "u1",
        "annotations": {
            "rota.dev/node": "n1",
            "rota.dev/gpus": "0,3",
            "rota.dev/master-addr": "10.0.0.1",
        },
        "managedFields": [{}],
    }


def test_settings_apply_to_every_pod() -> None:
    toleration = {"key": "lab", "operator": "Exists"}
    settings = KubernetesSettings(
        image="lab/base:1",
        pull_secrets=("registry",),
        service_account="training",
        priority_class="batch",
        tolerations=(toleration,),
    )
    [pod] = pods(Program(("p",)), Slot(NODE), settings=settings)
    spec = pod["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("training", "batch")
    assert toleration in spec["tolerations"]
    assert spec["containers"][0]["image"] == "lab/base:1"
    [own] = pods(Program(("p",), image="mine:2"), Slot(NODE), settings=settings)
    assert own["spec"]["containers"][0]["image"] == "mine:2"


def test_a_pod_is_owned_by_its_training_job() -> None:
    program = Program(("p",), workdir="/work", ports=(8080, 6006, 8080))
    [plain] = pods(program, Slot(NODE))
    assert "ownerReferences" not in plain["metadata"]
    assert plain["spec"]["containers"][0]["workingDir"] == "/work"
    ports = [each["containerPort"] for each in plain["spec"]["containers"][0]["ports"]]
    assert ports == [6006, 8080]
    [owned] = pods(replace(program, owner_uid="u-1"), Slot(NODE))
    [owner] = owned["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("TrainingJob", "job", "u-1")


@pytest.mark.parametrize(("wanted", "given"), [(0.0, 2), (1.0, 2), (29.5, 30), (600.0, 600)])
def test_a_stop_is_never_as_short_as_a_kill(wanted: float, given: int) -> None:
    assert grace_s(wanted) == given


def test_shipped_code_is_fetched_by_an_init_container() -> None:
    told = {"ROTA_URL": "http://daemon", "ROTA_TOKEN": "secret", "PASSWORD": "own"}
    limits = WorkerLimits(cpus=2.0, memory_bytes=GIB)
    program = Program(("p",), env=told, code="/shipped", workdir="/shipped/src", limits=limits)
    [pod] = pods(program, Slot(NODE, (0,)))
    [fetcher], [worker] = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert fetcher["image"] == SETTINGS.image
    assert fetcher["command"][:2] == ["python3", "-c"]
    assert fetcher["command"][3] == "/shipped"
    assert [each["name"] for each in fetcher["env"]] == ["ROTA_URL", "ROTA_TOKEN"]
    assert fetcher["resources"]["limits"] == {"cpu": "2000m", "memory": "1073741824"}
    assert fetcher["securityContext"] == worker["securityContext"]
    place = {"name": "code", "mountPath": "/shipped"}
    assert place in fetcher["volumeMounts"]
    assert place in worker["volumeMounts"]
    assert {"name": "code", "emptyDir": {}} in pod["spec"]["volumes"]
    assert worker["workingDir"] == "/shipped/src"


def test_the_token_is_in_no_pod() -> None:
    """Worker and init container read the token from one Secret of this start."""
    env = {"ROTA_URL": "http://daemon", "ROTA_TOKEN": "a-secret"}
    program = Program(("p",), env=env, code="/shipped")
    first, second = pods(program, Slot(NODE, (0,)), Slot(NODE, (1,)))
    assert "a-secret" not in str([first, second])
    spec = first["spec"]
    sources = [
        each["valueFrom"]["secretKeyRef"]
        for container in (*spec["initContainers"], *spec["containers"])
        for each in container["env"]
        if each["name"] == "ROTA_TOKEN"
    ]
    name = naming.token_secret(first)
    assert name.startswith("rota-token-job-a1-g0-")
    assert sources == [{"name": name, "key": "token"}] * 2
    assert naming.token_secret(second) == name


def test_the_init_container_has_no_writable_mounts_of_users() -> None:
    mounts = (
        Mount("pvc:data", "/shipped/data", is_writable=True),
        Mount("pvc:models", "/shipped/models"),
        Mount("pvc:results", "/results", is_writable=True),
        Mount("pvc:tools", "/usr/tools"),
    )
    [pod] = pods(Program(("p",), code="/shipped", mounts=mounts), Slot(NODE, (0,)))
    [fetcher], [worker] = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert [each["mountPath"] for each in fetcher["volumeMounts"]] == ["/usr/tools", "/shipped"]
    assert {"/shipped/data", "/shipped/models"} < {m["mountPath"] for m in worker["volumeMounts"]}


def test_no_init_container_without_shipped_code() -> None:
    [pod] = pods(Program(("p",)), Slot(NODE, (0,)))
    assert "initContainers" not in pod["spec"]
