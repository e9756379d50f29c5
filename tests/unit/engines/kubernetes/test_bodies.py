"""What a pod says of a worker."""

import pytest

from rota.engines.kubernetes import names
from rota.engines.kubernetes.bodies import MOST_GPUS, body_of
from rota.engines.kubernetes.manifests import affinity
from tests.unit.engines.kubernetes.objects import WORKER, Object, pod

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
