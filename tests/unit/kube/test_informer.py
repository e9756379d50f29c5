"""Each change is told once, whether a watch tells it or a list shows it."""

import asyncio
from contextlib import suppress

import pytest

from rota.engines.kubernetes.api import PODS, Cluster, Scope
from rota.engines.kubernetes.objects import Change, Listing
from rota.engines.kubernetes.watch import Reflector, Seen
from tests.unit.engines.kubernetes.objects import Object
from tests.unit.engines.kubernetes.test_api import Answer, served

LIST: Answer = 200, {"items": [], "metadata": {"resourceVersion": "7"}}


def thing(name: str, version: int = 1, uid: str = "") -> Object:
    meta = {"name": name, "namespace": "lab", "uid": uid or name, "resourceVersion": str(version)}
    return {"metadata": meta}


def told(changes: list[Change]) -> list[tuple[str, str]]:
    return [(each.type, each.object["metadata"]["uid"]) for each in changes]


def test_a_list_is_new_once() -> None:
    seen = Seen()
    assert told(seen.relisted([thing("a"), thing("b")])) == [("ADDED", "a"), ("ADDED", "b")]
    assert told(seen.relisted([thing("a"), thing("b")])) == []


def test_a_list_after_a_gap_shows_what_changed_came_and_went() -> None:
    seen = Seen()
    seen.relisted([thing("a"), thing("b"), thing("c")])
    news = told(seen.relisted([thing("a"), thing("b", 2), thing("d")]))
    assert sorted(news) == [("ADDED", "d"), ("DELETED", "c"), ("MODIFIED", "b")]


def test_what_a_list_showed_is_not_told_again_by_a_watch() -> None:
    seen = Seen()
    seen.relisted([thing("a", 5)])
    assert seen.news(Change("ADDED", thing("a", 5))) == []
    assert told(seen.news(Change("MODIFIED", thing("a", 6)))) == [("MODIFIED", "a")]


def test_an_object_in_the_place_of_another_means_that_the_other_is_gone() -> None:
    seen = Seen()
    seen.relisted([thing("a", 1, "old")])
    assert told(seen.relisted([thing("a", 9, "new")])) == [("DELETED", "old"), ("ADDED", "new")]
    assert seen.news(Change("DELETED", thing("a", 10, "old"))) == []
    assert told(seen.news(Change("DELETED", thing("a", 10, "new")))) == [("DELETED", "new")]


def test_namesakes_in_other_namespaces_are_others() -> None:
    seen = Seen()
    elsewhere = thing("a", 1, "other")
    elsewhere["metadata"]["namespace"] = "theirs"
    assert len(seen.relisted([thing("a"), elsewhere])) == 2
    assert told(seen.relisted([elsewhere])) == [("DELETED", "a")]


def behind(seen: Seen, *listed: Object, told: int) -> bool:
    return seen.is_behind(listed, listed="10", told=str(told))


def test_who_has_not_heard_of_all_that_a_list_shows_is_behind() -> None:
    seen = Seen()
    seen.relisted([thing("a", 4)])
    assert not behind(seen, thing("a", 4), told=4)
    assert behind(seen, thing("a", 5), told=4), "it changed"
    assert behind(seen, thing("a", 4), thing("b", 6), told=4), "another came"
    assert behind(seen, told=4), "it is gone"


def test_who_has_heard_of_more_than_a_list_shows_is_not_behind() -> None:
    seen = Seen()
    seen.relisted([thing("a", 11), thing("b", 12)])
    assert not behind(seen, thing("a", 5), told=12), "it changed since, and b came"
    assert not behind(seen, thing("a", 5), thing("c", 6), told=12), "c went since"


def test_what_was_just_listed_is_not_asked_for_again() -> None:
    """But later it is: what somebody lists meanwhile may be long over by then."""
    listing: Listing = [thing("a", 3)], "5"
    heard: list[Change] = []

    async def play(cluster: Cluster) -> None:
        watcher = Reflector(
            cluster,
            PODS,
            scope=Scope("lab"),
            listener=heard.append,
            first=lambda: listing,
        )
        await watcher.sync()
        assert told(heard) == [("ADDED", "a")]
        await watcher.sync()
        assert told(heard) == [("ADDED", "a"), ("DELETED", "a")]

    assert len(served([LIST], play)) == 1


def test_a_server_that_ends_each_watch_at_once_is_asked_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[int] = []

    def wait_s(n_before: int) -> float:
        waits.append(n_before)
        if len(waits) == 4:
            raise asyncio.CancelledError
        return 0.0

    async def play(cluster: Cluster) -> None:
        monkeypatch.setattr("rota.engines.kubernetes.watch.wait_s", wait_s)
        with suppress(asyncio.CancelledError):
            await Reflector(cluster, PODS, scope=Scope("lab"), listener=lambda _: None).run()

    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    asked = served([LIST, *[(200, [bookmark])] * 99], play)
    assert waits == [1, 2, 3, 4]
    assert len(asked) == len([LIST, *waits])
