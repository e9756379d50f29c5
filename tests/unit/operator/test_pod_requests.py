"""Requests for jobs that are made of plain pods."""

from rota.engines.kubernetes.external_pods import ExternalPodRequest
from rota.operator.pod_controller import job_request
from tests.unit.daemon.jobs.test_admission import spec


def test_the_memory_of_a_pod_is_admitted():
    pod = ExternalPodRequest(
        user="ada",
        priority=0,
        gpus=1,
        cpus=0.0,
        memory_bytes=3 * 2**30,
        node_labels={},
        command=["p"],
        claims=(),
        tolerations=frozenset(),
    )
    request = job_request("mine", pod)
    assert spec(gpus=request.gpus, memory=request.memory).memory_bytes == 3 * 2**30
