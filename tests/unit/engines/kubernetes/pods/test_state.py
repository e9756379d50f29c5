"""The state of a worker's pod."""

from dataclasses import replace

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.node import NodeId
from rota.engines.interface import Program
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.manifest import affinity, pod_of
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.state import MAX_GPUS, pod_state_of
from rota.engines.kubernetes.settings import KubernetesSettings
from tests.support.kube_objects import WORKER, Object, pod

SEAT = PodPlacement(WORKER, 0, 0, (Slot(NodeId("n1"), (2, 5)),))
GATED: Object = {"schedulingGates": [{"name": naming.GATE}]}
OPENED: Object = {"affinity": affinity("n1")}


@pytest.mark.parametrize(
    ("spec", "is_gate_bypassed"), [(GATED, False), (OPENED, False), ({}, True)]
)
def test_a_bypassed_gate(spec: Object, is_gate_bypassed: bool) -> None:
    assert pod_state_of(pod(spec=spec), WORKER).is_gate_bypassed == is_gate_bypassed


def test_an_external_pod_has_no_gate() -> None:
    plain = pod(meta={"annotations": None}, spec={"schedulerName": "rota"})
    body = pod_state_of(plain, WORKER)
    assert (body.is_external, body.is_gate_bypassed) == (True, False)


def test_gpu_indices_are_bounded() -> None:
    notes = {naming.GPUS: f"3,{MAX_GPUS - 1},{MAX_GPUS},4000000000,-1"}
    assert pod_state_of(pod(meta={"annotations": notes}), WORKER).gpus == (3, MAX_GPUS - 1)


@pytest.mark.parametrize("edited", [None, "", "1", "words", "3,4"])
def test_edited_annotations_do_not_change_gpus(edited: str | None) -> None:
    made = pod_of(SEAT, Program(("train",)), settings=KubernetesSettings())
    made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    notes = made["metadata"]["annotations"]
    notes.pop(naming.GPUS) if edited is None else notes.update({naming.GPUS: edited})
    assert pod_state_of(made, WORKER).gpus == (2, 5)


@pytest.mark.parametrize("edited", [None, "", "1", "words"])
@pytest.mark.parametrize("share_bytes", [0, 1 << 30])
def test_edited_annotations_do_not_change_the_share(edited: str | None, share_bytes: int) -> None:
    placement = replace(SEAT, allocation=(Slot(NodeId("n1"), (2,), share_bytes),))
    made = pod_of(placement, Program(("train",)), settings=KubernetesSettings())
    made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    notes = made["metadata"]["annotations"]
    notes.pop(naming.SHARE, None) if edited is None else notes.update({naming.SHARE: edited})
    assert pod_state_of(made, WORKER).share_bytes == share_bytes


def test_devices_come_from_the_container_status() -> None:
    gpus = [{"resourceID": f"GPU-{n}", "health": "Healthy"} for n in (3, 7)]
    given = [
        {"name": "nvidia.com/gpu", "resources": gpus},
        {"name": "rdma/hca", "resources": [{"resourceID": "mlx5_0"}]},
    ]
    status = {"name": naming.CONTAINER, "allocatedResourcesStatus": given}
    found = pod_state_of(pod("Running", status={"containerStatuses": [status]}), WORKER)
    assert found.devices == {"nvidia.com/gpu": ("GPU-3", "GPU-7"), "rdma/hca": ("mlx5_0",)}
    assert pod_state_of(pod(), WORKER).devices == {}


@pytest.mark.parametrize("variable", ["", "1,2,3"])
def test_variables_of_external_pods_are_ignored(variable: str) -> None:
    main = {"name": "main", "env": [{"name": naming.GPUS_VARIABLE, "value": variable}]}
    theirs = pod(
        meta={"annotations": {naming.GPUS: "2,5"}},
        spec={"schedulerName": naming.SCHEDULER, "containers": [main]},
    )
    assert pod_state_of(theirs, WORKER).gpus == (2, 5)
