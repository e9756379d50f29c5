"""What a job may ask of the nodes of a cluster."""

from dataclasses import replace
from typing import Any, cast

import pytest

from rota.daemon.fields import RefusedError
from rota.daemon.premises import Nodes
from rota.wire.jobs import JobRequest

NOTHING = cast("Any", None)
NODES = Nodes(
    NOTHING,
    None,
    "pvc:ckpt/{user}/{job}",
    ("/data",),
    is_reached=True,
    owner=NOTHING,
    accounts={},
    kept_claims=frozenset({"rota", "ckpt"}),
)
UNSHARED = replace(NODES, unshared="amd.com/gpu")
SHARES: list[dict[str, str]] = [{"gpus": "0.5"}, {"gpus": "6GiB"}, {"gpu_memory": "6GiB"}]


def asks_for(mount: str) -> JobRequest:
    return JobRequest(command=["p"], mounts=[mount])


@pytest.mark.parametrize(
    "mount", ["pvc:rota:/x", "pvc:rota/state:/x", "pvc:ckpt/eve:/x:rw", "pvc:ckpt/ada/1:/x"]
)
def test_no_job_mounts_the_daemons_state_nor_everybodys_checkpoints(mount: str) -> None:
    with pytest.raises(RefusedError, match="is not for jobs to mount"):
        NODES.check(asks_for(mount))


@pytest.mark.parametrize(
    "mount", ["pvc:rota2:/x", "pvc:sets/rota:/x", "nfs:rota:/rota:/x", "/data/rota:/x"]
)
def test_other_volumes_are_for_whoever_asks(mount: str) -> None:
    NODES.check(asks_for(mount))


@pytest.mark.parametrize("asked", SHARES)
def test_a_share_of_what_nobody_can_share_is_refused_by_name(asked: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match=r"calls amd\.com/gpu cannot be shared"):
        UNSHARED.check(JobRequest(command=["p"], **cast("Any", asked)))


@pytest.mark.parametrize("gpus", ["0", "2", "1..4", "many"])
def test_any_other_number_is_for_others_to_judge(gpus: str) -> None:
    UNSHARED.check(JobRequest(command=["p"], gpus=gpus))


def test_nothing_is_shipped_to_a_daemon_that_pods_cannot_ask_for_it() -> None:
    asked = JobRequest(command=["p"], snapshot="0" * 64)
    NODES.check(asked)
    with pytest.raises(RefusedError, match="cannot reach it"):
        replace(NODES, is_reached=False).check(asked)


@pytest.mark.parametrize("place", ["/shipped", "/shipped/", "/checkpoints"])
def test_where_rota_puts_something_nothing_else_is_mounted(place: str) -> None:
    asked = JobRequest(command=["p"], mounts=[f"pvc:sets:{place}"], snapshot="0" * 64)
    with pytest.raises(RefusedError, match="where rota puts something of its own"):
        NODES.check(asked)
    replace(NODES, volume="").check(replace(asked, snapshot=""))


def test_below_what_was_shipped_anything_is_mounted() -> None:
    NODES.check(JobRequest(command=["p"], mounts=["pvc:sets:/shipped/data"], snapshot="0" * 64))
