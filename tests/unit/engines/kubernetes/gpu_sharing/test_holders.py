"""Which card is shared: what its holder says, and what becomes of sharers where it does not."""

import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import web

from rota.core.model import GIB, JobId, NodeId, Slot
from rota.engines.base import WorkerId
from rota.engines.kubernetes.api import ApiError, Cluster
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.manifests import Seat
from rota.engines.kubernetes.placeholders import can_be_shared, placeholder
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.sharing import CardError, Cards
from tests.unit.engines.kubernetes.objects import WORKER, container
from tests.unit.engines.kubernetes.test_api import with_server

SEAT = Seat(WORKER, 0, 0, 1, Slot(NodeId("n1"), (1,), 20 * GIB))
OTHER = replace(SEAT, worker=replace(WORKER, job_id=JobId("other")))
SETTINGS = KubernetesSettings(stuck_after_s=0.0)


def held(line: str) -> str:
    """The name that a sharer is told, where the holder of its card says this."""
    holder = placeholder(("n1", 1), WORKER, settings=SETTINGS)
    holder["metadata"] |= {"uid": "u1", "resourceVersion": "1"}
    holder["status"] = {"phase": "Running"}
    names: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/log"):
            return web.Response(text=f"2026-11-16T08:00:00Z {line}\n")
        return web.Response(text=json.dumps(holder))

    async def play(cluster: Cluster) -> None:
        names.append(await Cards(cluster, SETTINGS, crew=Crew()).hold(SEAT))

    asyncio.run(with_server(answer, play))
    return names[0]


def test_a_card_is_known_by_what_its_holder_says() -> None:
    assert held("GPU-1234") == "GPU-1234"


@pytest.mark.parametrize(
    "line", ["", "sh: 1: nvidia-smi: not found", "/var/run/nvidia-container-devices"]
)
def test_a_holder_that_does_not_know_its_card_ends_its_sharers_with_a_hint(line: str) -> None:
    """They would else be given the words of a shell as a card, or wait and begin anew for ever."""
    with pytest.raises(CardError, match="does not say which card") as refused:
        held(line)
    trouble = refused.value.trouble
    assert trouble is not None
    assert not trouble.is_nobodys
    assert "NVIDIA_VISIBLE_DEVICES" in trouble.hint


def test_who_waits_for_a_card_is_told_once_why_nobody_holds_it() -> None:
    holder = placeholder(("n1", 1), WORKER, settings=SETTINGS)
    holder["metadata"] |= {"uid": "u1", "resourceVersion": "1"}
    holder["status"] = {"phase": "Pending"} | container(
        waiting={"reason": "ErrImagePull", "message": "no such host"}
    )

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(holder)

    async def play(cluster: Cluster) -> None:
        cards = Cards(cluster, replace(SETTINGS, stuck_after_s=120.0), crew=Crew())
        waiting = [asyncio.create_task(cards.hold(each)) for each in (SEAT, OTHER)]
        found: dict[WorkerId, str] = {}
        while len(found) < len(waiting):
            await asyncio.sleep(0)
            found |= cards.untold()
        words = "card 1 of n1 cannot be shared: of the pod that is to hold it: "
        words += "its image cannot be pulled: no such host"
        assert found == {SEAT.worker: words, OTHER.worker: words}
        assert cards.untold() == {}
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(with_server(answer, play))


def test_what_a_quota_refuses_ends_all_who_wait_for_the_card_with_its_words() -> None:
    """Only the first of them asks for it: the others would wait for what nobody makes."""
    refused = {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: none"}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(refused, status=403)

    async def play(cluster: Cluster) -> None:
        cards = Cards(cluster, SETTINGS, crew=Crew())
        ends = [cards.hold(each) for each in (SEAT, OTHER)]
        first, other = await asyncio.gather(*ends, return_exceptions=True)
        assert isinstance(first, ApiError)
        assert isinstance(other, CardError)
        assert "exceeded quota" in str(first)
        assert "exceeded quota" in str(other)
        assert other.trouble is not None
        assert other.trouble.is_nobodys
        assert cards.left() == []

    asyncio.run(with_server(answer, play))


def test_only_what_can_be_given_by_name_is_shared() -> None:
    assert all(map(can_be_shared, ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]))
    assert not can_be_shared("amd.com/gpu")
