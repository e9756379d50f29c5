"""Checks of requests for jobs on a cluster."""

from dataclasses import replace
from typing import Any, cast

import pytest

from rota.daemon.errors import RefusedError
from rota.daemon.launch.cluster import ClusterEnvironment
from rota.wire.jobs import JobRequest

NOTHING = cast("Any", None)
NODES = ClusterEnvironment(
    NOTHING,
    None,
    "pvc:ckpt/{user}/{job}",
    ("/data",),
    is_reached=True,
    owners=NOTHING,
    accounts={},
    reserved_claims=frozenset({"rota", "ckpt"}),
)
UNSHARED = replace(NODES, unshareable_resource="amd.com/gpu")
SHARES: list[dict[str, str]] = [{"gpus": "0.5"}, {"gpus": "6GiB"}, {"gpu_memory": "6GiB"}]


def asks_for(mount: str) -> JobRequest:
    return JobRequest(command=["p"], mounts=[mount])


@pytest.mark.parametrize(
    "mount", ["pvc:rota:/x", "pvc:rota/state:/x", "pvc:ckpt/eve:/x:rw", "pvc:ckpt/ada/1:/x"]
)
def test_reserved_claims_cannot_be_mounted(mount: str) -> None:
    with pytest.raises(RefusedError, match="jobs may not mount the claim"):
        NODES.check(asks_for(mount))


@pytest.mark.parametrize(
    "mount", ["pvc:rota2:/x", "pvc:sets/rota:/x", "nfs:rota:/rota:/x", "/data/rota:/x"]
)
def test_other_volumes_can_be_mounted(mount: str) -> None:
    NODES.check(asks_for(mount))


@pytest.mark.parametrize("asked", SHARES)
def test_a_share_of_an_unshareable_gpu_is_rejected(asked: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match=r"GPUs of resource amd\.com/gpu cannot be shared"):
        UNSHARED.check(JobRequest(command=["p"], **cast("Any", asked)))


@pytest.mark.parametrize("gpus", ["0", "2", "1..4", "many"])
def test_other_numbers_of_gpus_are_not_checked(gpus: str) -> None:
    UNSHARED.check(JobRequest(command=["p"], gpus=gpus))


def test_shipped_code_needs_a_daemon_that_pods_can_reach() -> None:
    asked = JobRequest(command=["p"], snapshot="0" * 64)
    NODES.check(asked)
    with pytest.raises(RefusedError, match="pods cannot reach the daemon"):
        replace(NODES, is_reached=False).check(asked)


@pytest.mark.parametrize("place", ["/shipped", "/shipped/", "/checkpoints"])
def test_folders_of_rota_cannot_be_mount_targets(place: str) -> None:
    asked = JobRequest(command=["p"], mounts=[f"pvc:sets:{place}"], snapshot="0" * 64)
    with pytest.raises(RefusedError, match="rota itself uses"):
        NODES.check(asked)
    replace(NODES, volume="").check(replace(asked, snapshot=""))


def test_subfolders_of_shipped_code_can_be_mount_targets() -> None:
    NODES.check(JobRequest(command=["p"], mounts=["pvc:sets:/shipped/data"], snapshot="0" * 64))
