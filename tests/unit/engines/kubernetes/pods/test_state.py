"""What a pod says of a worker."""

from dataclasses import replace

import pytest

from rota.core.model import NodeId, Slot
from rota.engines.base import Program
from rota.engines.kubernetes import names
from rota.engines.kubernetes.bodies import MOST_GPUS, body_of
from rota.engines.kubernetes.manifests import Seat, affinity, pod_of
from rota.engines.kubernetes.settings import KubernetesSettings
from tests.unit.engines.kubernetes.objects import WORKER, Object, pod

SEAT = Seat(WORKER, 0, 0, 1, Slot(NodeId("n1"), (2, 5)))
GATED: Object = {"schedulingGates": [{"name": names.GATE}]}
OPENED: Object = {"affinity": affinity("n1")}


@pytest.mark.parametrize(("spec", "is_astray"), [(GATED, False), (OPENED, False), ({}, True)])
def test_a_gate_that_somebody_else_opened(spec: Object, is_astray: bool) -> None:
    assert body_of(pod(spec=spec), WORKER).is_astray == is_astray


def test_a_pod_that_was_left_to_us_has_no_gate() -> None:
    plain = pod(meta={"annotations": None}, spec={"schedulerName": "rota"})
    body = body_of(plain, WORKER)
    assert (body.is_plain, body.is_astray) == (True, False)


def test_nobody_writes_more_gpus_into_a_pod_than_a_node_can_have() -> None:
    notes = {names.GPUS: f"3,{MOST_GPUS - 1},{MOST_GPUS},4000000000,-1"}
    assert body_of(pod(meta={"annotations": notes}), WORKER).gpus == (3, MOST_GPUS - 1)


@pytest.mark.parametrize("edited", [None, "", "1", "words", "3,4"])
def test_nobody_takes_a_worker_its_gpus_by_editing_its_pod(edited: str | None) -> None:
    made = pod_of(SEAT, Program(("train",)), settings=KubernetesSettings())
    made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    notes = made["metadata"]["annotations"]
    notes.pop(names.GPUS) if edited is None else notes.update({names.GPUS: edited})
    assert body_of(made, WORKER).gpus == (2, 5)


@pytest.mark.parametrize("edited", [None, "", "1", "words"])
@pytest.mark.parametrize("share_bytes", [0, 1 << 30])
def test_nobody_makes_a_sharer_of_a_worker_or_none_of_one_by_editing_its_pod(
    edited: str | None, share_bytes: int
) -> None:
    seat = replace(SEAT, slot=Slot(NodeId("n1"), (2,), share_bytes))
    made = pod_of(seat, Program(("train",)), settings=KubernetesSettings())
    made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    notes = made["metadata"]["annotations"]
    notes.pop(names.SHARE, None) if edited is None else notes.update({names.SHARE: edited})
    assert body_of(made, WORKER).share_bytes == share_bytes


def test_a_node_tells_which_devices_a_program_was_given() -> None:
    gpus = [{"resourceID": f"GPU-{n}", "health": "Healthy"} for n in (3, 7)]
    given = [
        {"name": "nvidia.com/gpu", "resources": gpus},
        {"name": "rdma/hca", "resources": [{"resourceID": "mlx5_0"}]},
    ]
    status = {"name": names.CONTAINER, "allocatedResourcesStatus": given}
    found = body_of(pod("Running", status={"containerStatuses": [status]}), WORKER)
    assert found.devices == {"nvidia.com/gpu": ("GPU-3", "GPU-7"), "rdma/hca": ("mlx5_0",)}
    assert body_of(pod(), WORKER).devices == {}


@pytest.mark.parametrize("variable", ["", "1,2,3"])
def test_what_somebody_tells_their_own_program_is_not_for_us(variable: str) -> None:
    main = {"name": "main", "env": [{"name": names.GPUS_VARIABLE, "value": variable}]}
    theirs = pod(
        meta={"annotations": {names.GPUS: "2,5"}},
        spec={"schedulerName": names.SCHEDULER, "containers": [main]},
    )
    assert body_of(theirs, WORKER).gpus == (2, 5)
