"""Stored requests, also those of earlier versions."""

from __future__ import annotations

import json

import pytest

from rota.daemon.launch.programs import SubmittedProgram, pack, unpack
from rota.wire.jobs import JobRequest


def stored(**request: object) -> str:
    """A request as versions before the field `host_network` stored it."""
    return json.dumps({"request": {"command": ["train"], **request}})


def test_container_accepted_before_the_field_keeps_the_network_of_the_machine():
    assert unpack(stored(image="torch", gpus="1..4")).request.host_network


def test_job_without_an_image_needs_no_network_of_a_container():
    assert not unpack(stored(gpus="1..4")).request.host_network


@pytest.mark.parametrize("host_network", [False, True])
def test_choice_of_the_network_is_stored(host_network: bool):
    request = JobRequest(["train"], image="torch", host_network=host_network)
    saved = SubmittedProgram(request, 3, "hash", "pod/uid")
    assert unpack(pack(saved)) == saved
