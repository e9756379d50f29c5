"""Stored requests, also those of earlier versions."""

from __future__ import annotations

import json

import pytest

from rota.core.model.job import JobId, JobSpec
from rota.daemon.jobs.admission import Admitted
from rota.daemon.launch.programs import SubmittedProgram, pack, pack_all, unpack
from rota.store.records import Submission
from rota.wire.jobs import JobRequest


def stored(**request: object) -> Submission:
    """A request as versions before the field `host_network` stored it."""
    return saved_as(json.dumps({"request": {"command": ["train"], **request}}))


def saved_as(program: str, common: str = "") -> Submission:
    return Submission(JobId("j"), "ada", 1000, program, None, common)


def test_container_accepted_before_the_field_keeps_the_network_of_the_machine():
    assert unpack(stored(image="torch", gpus="1..4")).request.host_network


def test_job_without_an_image_needs_no_network_of_a_container():
    assert not unpack(stored(gpus="1..4")).request.host_network


@pytest.mark.parametrize("host_network", [False, True])
def test_choice_of_the_network_is_stored(host_network: bool):
    request = JobRequest(["train"], image="torch", host_network=host_network)
    saved = SubmittedProgram(request, 3, "hash", "pod/uid")
    assert unpack(saved_as(pack(saved))) == saved


@pytest.mark.parametrize("image", ["", "torch"])
def test_jobs_of_an_array_store_their_request_once(image: str):
    request = JobRequest(["train"], env={"DATA": "x" * 1000}, image=image, array="0-99")
    admitted = [Admitted(JobSpec("train", "ada"), request, index) for index in range(100)]
    packed = list(pack_all(admitted, "hash"))
    assert len({each.common for each in packed}) == 1
    assert sum(len(each.own) for each in packed) < 3000
    read = [unpack(saved_as(each.own, each.common)) for each in packed]
    assert read[0] == SubmittedProgram(request, 0, "hash")
    assert read[1:] == [SubmittedProgram(request, index) for index in range(1, 100)]


def test_different_jobs_of_a_batch_share_nothing():
    admitted = [Admitted(JobSpec("train", "ada"), JobRequest(["p", name])) for name in "ab"]
    assert [each.common for each in pack_all(admitted, "")] == ["", ""]
