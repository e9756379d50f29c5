"""A pod that somebody made who commanded before is taken, and a stranger's is not."""

import asyncio
from dataclasses import replace

import pytest

from rota.core.model import NodeId, Slot
from rota.engines.base import WorkerId
from rota.engines.kubernetes import transport
from rota.engines.kubernetes.api import Cluster
from rota.engines.kubernetes.births import Births, Registrar
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.endings import Ending, Trouble
from rota.engines.kubernetes.manifests import Seat
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.sharing import Cards
from tests.unit.engines.kubernetes.objects import WORKER, Object, pod
from tests.unit.engines.kubernetes.test_api import Answer, failure, served

SEAT = Seat(WORKER, 0, 0, 1, Slot(NodeId("n2"), (1,)))
GATED = {"schedulingGates": [{"name": "rota.dev/plan"}]}
TAKEN = failure(422, "Invalid")
FULL = (403, {"code": 403, "reason": "Forbidden", "message": "it exceeded quota: small"})


def brought_up(
    *answers: Answer, is_ours: bool = True, seat: Seat = SEAT
) -> tuple[list[str], list[Ending]]:
    """What was asked for, and the verdicts."""
    asked, verdicts, _ = tried(*answers, is_ours=is_ours, seat=seat)
    return asked, verdicts


def tried(
    *answers: Answer, is_ours: bool = True, seat: Seat = SEAT
) -> tuple[list[str], list[Ending], list[Trouble | None]]:
    """And what kept it from being: who is told of that wants it no longer."""
    crew, verdicts, troubles = Crew(), list[Ending](), list[Trouble | None]()

    def see(found: Object) -> None:
        if is_ours:
            crew.see(found, WORKER)

    def give_up(_: WorkerId, ending: Ending) -> None:
        verdicts.append(ending)

    def hinder(_: WorkerId, trouble: Trouble | None) -> None:
        troubles.append(trouble)
        crew.doom(WORKER)

    async def play(cluster: Cluster) -> None:
        cards = Cards(cluster, KubernetesSettings(), crew=crew)
        registrar = Registrar(see, hinder, give_up)
        births = Births(cluster, crew, cards=cards, registrar=registrar)
        bringing = asyncio.create_task(births.bring_up([(seat, pod())], master=WORKER))
        await asyncio.sleep(0)
        assert births.coming == {WORKER: seat}
        await bringing
        assert births.coming == {}

    asked = served(list(answers), play)
    return [each.partition(" ")[0] for each in asked], verdicts, troubles


def test_a_pod_that_is_there_already_is_opened() -> None:
    found = pod(spec=GATED)
    opened = pod(meta={"resourceVersion": "2"})
    asked, verdicts = brought_up(TAKEN, (200, found), (200, opened), is_ours=True)
    assert asked == ["PATCH", "GET", "PATCH"]
    assert verdicts == []


def test_what_is_wrong_with_a_pod_is_told_although_a_stranger_has_its_name() -> None:
    asked, verdicts = brought_up(TAKEN, (200, pod()), is_ours=False)
    assert asked == ["PATCH", "GET"]
    assert [each.code for each in verdicts] == [126]
    assert "it is Invalid" in verdicts[0].reason


def test_what_is_wrong_with_a_pod_is_told() -> None:
    asked, verdicts = brought_up(TAKEN, failure(404, "NotFound"), is_ours=True)
    assert asked == ["PATCH", "GET"]
    assert "it is Invalid" in verdicts[0].reason


def test_what_a_quota_refuses_has_lost_nothing_but_its_turn() -> None:
    _, [verdict] = brought_up(FULL)
    assert verdict.is_lost
    assert "exceeded quota: small" in verdict.reason


def test_a_newcomer_that_a_quota_refuses_could_not_join() -> None:
    """Whoever asked for it would else ask at once for another."""
    _, [verdict] = brought_up(FULL, seat=replace(SEAT, generation=1))
    assert (verdict.code, verdict.is_lost, verdict.is_retriable) == (126, False, True)


def test_a_webhook_that_is_down_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FIRST_WAIT_S", 0.0)
    words = 'Internal error occurred: failed calling webhook "w"'
    down = 500, {"code": 500, "reason": "InternalError", "message": words}
    _, verdicts, [trouble] = tried(*[down] * transport.TRIES)
    assert trouble == Trouble(f"the cluster refused: {words}", is_outage=True)
    assert verdicts == []


@pytest.mark.parametrize("away", [failure(503, "ServiceUnavailable"), failure(500, "")])
def test_a_cluster_that_is_away_hinders_nobody(
    monkeypatch: pytest.MonkeyPatch, away: Answer
) -> None:
    """Nor does one whose own store is."""
    monkeypatch.setattr(transport, "FIRST_WAIT_S", 0.0)
    assert tried(*[away] * transport.TRIES)[1:] == ([], [None])
