"""Events that wait: users take turns, and large objects are not kept."""

import asyncio

from rota.kube.resources import Object, WatchEvent
from rota.operator.change_queue import MAX_KEPT_BYTES, ChangeQueue, has_content


def thing(name: str, user: str = "eve", **spec: object) -> Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "user": user}, "spec": spec}


def queue_of(*changes: WatchEvent) -> ChangeQueue:
    made = ChangeQueue(lambda found: found["metadata"]["user"])
    for each in changes:
        made.put(each)
    return made


def taken(queue: ChangeQueue, n: int) -> list[str]:
    async def take() -> list[str]:
        return [await queue.next_name() for _ in range(n)]

    return asyncio.run(take())


def test_a_user_with_many_objects_does_not_delay_others() -> None:
    flood = [WatchEvent("ADDED", thing(f"e{number}")) for number in range(2000)]
    queue = queue_of(*flood, WatchEvent("ADDED", thing("mine", "ann")))
    assert taken(queue, 4) == ["e0", "mine", "e1", "e2"]


def test_a_newer_state_replaces_an_older_one() -> None:
    first, second = thing("a", size=1), thing("a", size=2)
    gone = {"metadata": {"name": "a", "uid": "uid-a", "user": "eve"}}
    queue = queue_of(
        WatchEvent("ADDED", first),
        WatchEvent("MODIFIED", second),
        WatchEvent("DELETED", gone),
        WatchEvent("ADDED", first),
    )
    assert taken(queue, 1) == ["a"]
    found = [queue.pop("a") for _ in range(4)]
    assert [each and (each.type, each.object.get("spec")) for each in found] == [
        ("MODIFIED", {"size": 2}),
        ("DELETED", None),
        ("ADDED", {"size": 1}),
        None,
    ]


def test_an_event_that_arrives_meanwhile_is_taken_by_the_same_worker() -> None:
    """So that an object is never processed twice at once."""
    queue = queue_of(WatchEvent("ADDED", thing("a")))
    assert taken(queue, 1) == ["a"]
    assert queue.pop("a")
    queue.put(WatchEvent("MODIFIED", thing("a")))
    assert queue.pop("a")
    assert queue.pop("a") is None


def test_a_large_object_is_read_again_when_its_turn_comes() -> None:
    queue = queue_of(WatchEvent("ADDED", thing("a", env="x" * MAX_KEPT_BYTES)))
    [name] = taken(queue, 1)
    change = queue.pop(name)
    assert change is not None
    assert not has_content(change)
    assert change.object["metadata"]["uid"] == "uid-a"
    assert len(str(change)) < MAX_KEPT_BYTES
