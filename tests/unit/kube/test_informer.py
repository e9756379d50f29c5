"""The listener receives each change once, from a watch or from a list."""

import asyncio
from contextlib import suppress

import pytest

from rota.errors import UserError
from rota.kube.client import KubeClient
from rota.kube.informer import Reflector, VersionTracker
from rota.kube.resources import PODS, Listing, ResourceScope, WatchEvent
from tests.support.kube_objects import Object
from tests.unit.kube.test_client import Answer, served

LIST: Answer = 200, {"items": [], "metadata": {"resourceVersion": "7"}}


def thing(name: str, version: int = 1, uid: str = "") -> Object:
    meta = {"name": name, "namespace": "lab", "uid": uid or name, "resourceVersion": str(version)}
    return {"metadata": meta}


def summary(changes: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(each.type, each.object["metadata"]["uid"]) for each in changes]


def test_a_repeated_list_has_no_events() -> None:
    seen = VersionTracker()
    assert summary(seen.on_list([thing("a"), thing("b")])) == [("ADDED", "a"), ("ADDED", "b")]
    assert summary(seen.on_list([thing("a"), thing("b")])) == []


def test_a_list_after_a_gap_shows_all_changes() -> None:
    seen = VersionTracker()
    seen.on_list([thing("a"), thing("b"), thing("c")])
    news = summary(seen.on_list([thing("a"), thing("b", 2), thing("d")]))
    assert sorted(news) == [("ADDED", "d"), ("DELETED", "c"), ("MODIFIED", "b")]


def test_a_watch_does_not_repeat_a_listed_version() -> None:
    seen = VersionTracker()
    seen.on_list([thing("a", 5)])
    assert seen.on_event(WatchEvent("ADDED", thing("a", 5))) == []
    assert summary(seen.on_event(WatchEvent("MODIFIED", thing("a", 6)))) == [("MODIFIED", "a")]


def test_a_new_uid_means_that_the_old_object_was_deleted() -> None:
    seen = VersionTracker()
    seen.on_list([thing("a", 1, "old")])
    assert summary(seen.on_list([thing("a", 9, "new")])) == [("DELETED", "old"), ("ADDED", "new")]
    assert seen.on_event(WatchEvent("DELETED", thing("a", 10, "old"))) == []
    assert summary(seen.on_event(WatchEvent("DELETED", thing("a", 10, "new")))) == [
        ("DELETED", "new")
    ]


def test_objects_of_other_namespaces_are_different() -> None:
    seen = VersionTracker()
    elsewhere = thing("a", 1, "other")
    elsewhere["metadata"]["namespace"] = "theirs"
    assert len(seen.on_list([thing("a"), elsewhere])) == 2
    assert summary(seen.on_list([elsewhere])) == [("DELETED", "a")]


def behind(seen: VersionTracker, *listed: Object, watched: int) -> bool:
    return seen.is_behind(listed, listed="10", watched=str(watched))


def test_a_tracker_with_missing_changes_is_behind() -> None:
    seen = VersionTracker()
    seen.on_list([thing("a", 4)])
    assert not behind(seen, thing("a", 4), watched=4)
    assert behind(seen, thing("a", 5), watched=4), "it changed"
    assert behind(seen, thing("a", 4), thing("b", 6), watched=4), "another came"
    assert behind(seen, watched=4), "it is gone"


def test_a_tracker_with_newer_changes_is_not_behind() -> None:
    seen = VersionTracker()
    seen.on_list([thing("a", 11), thing("b", 12)])
    assert not behind(seen, thing("a", 5), watched=12), "it changed since, and b came"
    assert not behind(seen, thing("a", 5), thing("c", 6), watched=12), "c went since"


def test_a_given_first_listing_replaces_the_first_request() -> None:
    """Only the first one: a later listing may be outdated."""
    listing: Listing = [thing("a", 3)], "5"
    heard: list[WatchEvent] = []

    async def play(cluster: KubeClient) -> None:
        watcher = Reflector(
            cluster,
            PODS,
            scope=ResourceScope("lab"),
            listener=heard.append,
            first=lambda: listing,
        )
        await watcher.sync()
        assert summary(heard) == [("ADDED", "a")]
        await watcher.sync()
        assert summary(heard) == [("ADDED", "a"), ("DELETED", "a")]

    assert len(served([LIST], play)) == 1


def test_short_watches_cause_growing_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[int] = []

    def wait_s(n_before: int) -> float:
        waits.append(n_before)
        if len(waits) == 4:
            raise asyncio.CancelledError
        return 0.0

    async def play(cluster: KubeClient) -> None:
        monkeypatch.setattr("rota.kube.informer.retry_delay_s", wait_s)
        with suppress(asyncio.CancelledError):
            await Reflector(
                cluster, PODS, scope=ResourceScope("lab"), listener=lambda _: None
            ).run()

    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    asked = served([LIST, *[(200, [bookmark])] * 99], play)
    assert waits == [1, 2, 3, 4]
    assert len(asked) == len([LIST, *waits])


def test_an_error_about_one_object_does_not_end_the_watch() -> None:
    """Otherwise the next daemon would find the same object, and fail again."""
    heard, is_over = list[str](), asyncio.Event()

    def listen(change: WatchEvent) -> None:
        name = change.object["metadata"]["name"]
        if name == "bug":
            raise OverflowError(name)
        if name == "refused":
            raise UserError(name)
        heard.append(name)
        if name == "later":
            is_over.set()

    async def play(cluster: KubeClient) -> None:
        watcher = Reflector(cluster, PODS, scope=ResourceScope("lab"), listener=listen)
        await watcher.sync()
        running = asyncio.ensure_future(watcher.run())
        await is_over.wait()
        running.cancel()

    some = [thing("bug"), thing("refused"), thing("fine")]
    listing: Answer = 200, {"items": some, "metadata": {"resourceVersion": "7"}}
    later = [{"type": "ADDED", "object": thing(name, 8)} for name in ("bug", "refused", "later")]
    served([listing, *[(200, later)] * 9], play)
    assert heard == ["fine", "later"]
