"""The store of a round behaves like torch's own stores, within limits."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from rota.daemon.access.authorization import Caller
from rota.daemon.elastic.kv_store import MOST_BYTES
from rota.errors import UnavailableError
from rota_trainer.reporting.environment import WorkerEnvironment
from rota_trainer.torchrun.messages import (
    LARGEST_VALUE,
    LONGEST_KEY,
    MET,
    RendezvousAssignment,
    StoreRequest,
    StoreResponse,
)
from rota_trainer.torchrun.store import RendezvousBrokenError, RotaStore
from tests.integration.torchrun.scheduler import JOB, TOKEN, FakeScheduler
from tests.support.timeouts import PATIENCE_S

STORES: Any = dist
SHORT = timedelta(seconds=0.2)
Opens = Callable[..., Any]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[FakeScheduler]:
    found = FakeScheduler((0, 1))
    yield found
    found.stop()


turns = iter(range(1, 1000))


@pytest.fixture
def opens(scheduler: FakeScheduler) -> Iterator[Opens]:
    """The store of a new round, as seen by this worker."""
    number = next(turns)
    opened: list[RotaStore] = []

    def opens(worker: int = 0, turn_: int = number) -> RotaStore:
        assignment = RendezvousAssignment(MET, scheduler.generation(), turn_, worker, 2)
        opened.append(
            RotaStore(WorkerEnvironment(scheduler.url, TOKEN, JOB, worker=worker), assignment)
        )
        return opened[-1]

    yield opens
    for each in opened:
        each.close()


@pytest.fixture(params=["rota", "rota with a prefix", "torch"])
def store(request: pytest.FixtureRequest, opens: Opens) -> Any:
    if request.param == "torch":
        return STORES.HashStore()
    own = opens()
    # C++ calls methods of other names than Python.
    return STORES.PrefixStore("p", own) if "prefix" in request.param else own


def test_values_can_be_set_and_read(store: Any) -> None:
    store.set("a", "one")
    store.set("b", b"\x00\xff")
    store.set("a", "two")
    assert (store.get("a"), store.get("b")) == (b"two", b"\x00\xff")
    store.multi_set(["c", "d"], ["3", "4"])
    assert store.multi_get(["d", "c"]) == [b"4", b"3"]
    store.set("empty", "")
    assert store.get("empty") == b""
    assert store.check(["a", "b"])
    assert not store.check(["a", "nobody"])
    assert store.num_keys() == 5
    assert store.delete_key("a")
    assert not store.delete_key("a")
    assert store.num_keys() == 4


def test_add_returns_sums(store: Any) -> None:
    assert [store.add("n", 2), store.add("n", -5), store.add("n", 0)] == [2, -3, -3]
    assert store.get("n") == b"-3"
    store.set("m", "40")
    assert store.add("m", 2) == 42


def test_compare_set_replaces_only_the_expected_value(store: Any) -> None:
    assert store.compare_set("k", "old", "new") == b"old"
    assert not store.check(["k"])
    assert store.compare_set("k", "", "first") == b"first"
    assert store.compare_set("k", "other", "second") == b"first"
    assert store.compare_set("k", "first", "second") == b"second"
    assert store.get("k") == b"second"


def test_wait_times_out(store: Any) -> None:
    store.set_timeout(SHORT)
    with pytest.raises(dist.DistStoreError, match=r"[Ww]ait timeout"):
        store.get("nobody")
    with pytest.raises(dist.DistStoreError, match=r"[Ww]ait timeout"):
        store.wait(["nobody"])
    store.set_timeout(timedelta(seconds=60))
    with pytest.raises(dist.DistStoreError, match=r"[Ww]ait timeout"):
        store.wait(["nobody"], SHORT)
    store.set("somebody", "x")
    store.wait(["somebody"], SHORT)


def test_append_extends_a_value(opens: Opens) -> None:
    store = opens()
    store.append("k", "ab")
    store.append("k", "cd")
    assert store.get("k") == b"abcd"


def test_waiting_worker_gets_a_new_value_at_once(opens: Opens) -> None:
    one, other = opens(0), opens(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.get, "k")
        one.set("before", "x")
        assert not waiting.done()
        one.set("k", "v")
        assert waiting.result(PATIENCE_S) == b"v"


def test_concurrent_adds_are_all_counted(opens: Opens) -> None:
    stores = [opens(worker) for worker in (0, 1)]
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda number: stores[number % 2].add("n", 1), range(200)))
    assert sorted(sums) == list(range(1, 201))


def test_new_round_has_no_values_of_the_previous_round(opens: Opens) -> None:
    first, later = opens(), opens(turn_=next(turns))
    first.set("k", "v")
    assert not later.check(["k"])
    with pytest.raises(RendezvousBrokenError):
        first.get("k")


def test_limits_are_enforced(opens: Opens) -> None:
    store = opens()
    store.set("x" * LONGEST_KEY, b"y" * LARGEST_VALUE)
    assert store.get("x" * LONGEST_KEY) == b"y" * LARGEST_VALUE
    with pytest.raises(dist.DistNetworkError, match="4 MiB"):
        store.multi_get(["x" * LONGEST_KEY] * 5)
    with pytest.raises(dist.DistStoreError, match="key must have 1 to"):
        store.set("x" * (LONGEST_KEY + 1), "y")
    with pytest.raises(dist.DistStoreError, match="larger than 1024 KiB"):
        store.set("x", b"y" * (LARGEST_VALUE + 1))
    for number in range(MOST_BYTES // LARGEST_VALUE - 2):
        store.set(str(number), os.urandom(LARGEST_VALUE))
    store.set("last", b"y" * (LARGEST_VALUE // 2))
    with pytest.raises(dist.DistNetworkError, match="16 MiB"):
        store.set("more", b"y" * LARGEST_VALUE)
    # Replaced and deleted values free space.
    store.delete_key("0")
    store.set("more", b"y" * LARGEST_VALUE)


def test_add_to_a_value_that_is_no_number_fails(opens: Opens) -> None:
    store = opens()
    store.set("k", "words")
    with pytest.raises(dist.DistNetworkError, match="is not a number"):
        store.add("k", 1)


def test_values_are_sent_again_to_a_restarted_daemon(
    opens: Opens, scheduler: FakeScheduler
) -> None:
    one, other = opens(0), opens(1)
    one.set("k", "v")
    one.add("n", 1)
    other.add("n", 2)
    one.set_timeout(timedelta(seconds=60))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.get, "late")
        scheduler.stop()
        scheduler.start()
        other.set("late", "came")
        assert waiting.result(PATIENCE_S) == b"came"
    assert other.get("k") == b"v"
    assert other.add("n", 0) == 3


def test_concurrent_waiters_restore_the_values_of_a_restarted_daemon_once(
    opens: Opens, scheduler: FakeScheduler
) -> None:
    store, other = opens(0), opens(1)
    store.add("n", 1)
    store.set_timeout(timedelta(seconds=60))
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(store.get, "late") for _ in range(2)]
        scheduler.stop()
        scheduler.start()
        other.set("late", "came")
        assert [each.result(PATIENCE_S) for each in waiting] == [b"came"] * 2
    assert other.add("n", 0) == 1


def test_missing_daemon_raises_after_the_timeout(opens: Opens, scheduler: FakeScheduler) -> None:
    store = opens()
    store.set("k", "v")
    store.set_timeout(SHORT)
    scheduler.stop()
    try:
        with pytest.raises(dist.DistNetworkError):
            store.get("k")
    finally:
        scheduler.start()


@pytest.mark.parametrize("is_applied", [False, True])
def test_keys_are_written_again_after_a_failed_request(
    opens: Opens, scheduler: FakeScheduler, *, is_applied: bool
) -> None:
    """The daemon restarts, and a request that writes the keys again fails before or after the
    daemon applies it."""
    store, other = opens(0), opens(1)
    store.set("first", "1")
    store.set("k", "v")
    store.add("n", 1)
    scheduler.stop()
    scheduler.start()
    exchange = scheduler.rendezvous.exchange
    n_changes = iter(range(100))

    async def fails_once(caller: Caller, request: StoreRequest) -> StoreResponse:
        is_change = request.deed in ("set", "add")
        has_failed = is_change and next(n_changes) == (2 if is_applied else 1)
        if has_failed and not is_applied:
            raise UnavailableError("the request was lost")
        answer = await exchange(caller, request)
        if has_failed:
            raise UnavailableError("the response was lost")
        return answer

    scheduler.rendezvous.exchange = fails_once
    assert store.get("first") == b"1"
    scheduler.rendezvous.exchange = exchange
    assert other.check(["k"])
    assert other.add("n", 0) == 1
