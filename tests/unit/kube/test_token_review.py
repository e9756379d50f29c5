"""Whose token it is: names that nobody can choose, and few questions."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import Any

import pytest

from rota.api.strangers import ClusterPeople
from rota.daemon.people import ForbiddenError
from rota.engines.kubernetes.reviews import (
    AT_ONCE,
    KNOWN_S,
    MOST_KEPT,
    MOST_WAITING,
    UNKNOWN_S,
    TokenReviews,
    name_of,
    person_of,
)
from rota.errors import UnavailableError


class Cluster:
    """Says of every token that begins with `user-` that it is that user's."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.n_at_once = 0
        self.most_at_once = 0
        self.is_down = False

    async def create(self, _: object, body: dict[str, Any]) -> dict[str, Any]:
        token = body["spec"]["token"]
        self.asked.append(token)
        self.n_at_once += 1
        self.most_at_once = max(self.most_at_once, self.n_at_once)
        await asyncio.sleep(0)
        self.n_at_once -= 1
        if self.is_down:
            raise UnavailableError("the cluster does not answer")
        if not token.startswith("user-"):
            return {"status": {"authenticated": False, "error": token}}
        user = {"username": token.removeprefix("user-"), "groups": ["lab", "system:authenticated"]}
        return {"status": {"authenticated": True, "user": user}}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def reviews(cluster: Cluster, clock: Clock | None = None) -> TokenReviews:
    return TokenReviews(cluster, clock=clock or Clock())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


NAMES = [
    "ann",
    "ann@lab.example",
    "Ann",
    "sa.team.trainer",
    "k8s-ann",
    "system:serviceaccount:team:trainer",
    "system:serviceaccount:team:trainer.x",
    "system:serviceaccount:team.trainer:x",
    "system:serviceaccount:team:",
    "system:serviceaccount:team:a:b",
    "system:serviceaccount:" + "n" * 63 + ":" + "a" * 200,
    "system:serviceaccount:" + "n" * 63 + ":" + "a" * 199,
    "system:admin",
    "system-admin",
    "system/admin",
    "../../root",
    "root\n",
    "äöü",
    "-rf",
    "x" * 81,
    "x" * 82,
]


def test_no_two_users_have_one_name() -> None:
    names = [name_of(each) for each in NAMES]
    assert all(one != other for one, other in combinations(names, 2))


@pytest.mark.parametrize("username", NAMES)
def test_a_name_can_be_part_of_a_path_and_is_its_own(username: str) -> None:
    name = name_of(username)
    assert name.replace("_", "").replace(".", "").replace("@", "").replace("-", "").isalnum()
    assert name.isascii()
    assert len(name) <= 80
    # Nobody can call themselves what somebody else is called by us.
    assert name == username or name_of(name) != name


def test_ordinary_names() -> None:
    assert name_of("ann@lab.example") == "ann@lab.example"
    assert name_of("system:serviceaccount:team-a:trainer") == "sa.team-a.trainer"


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": {"username": "ann"}},
        {"authenticated": "true", "user": {"username": "ann"}},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": 5}},
    ],
)
def test_nobody(status: dict[str, Any]) -> None:
    assert person_of(status) is None


def test_a_token_that_was_meant_for_others_is_nobodys() -> None:
    status = {"authenticated": True, "user": {"username": "ann"}}
    assert person_of(status, audiences=("rota",)) is None
    assert person_of({**status, "audiences": ["other"]}, audiences=("rota",)) is None
    assert person_of({**status, "audiences": ["rota"]}, audiences=("rota",)) is not None


def test_a_token_is_asked_about_once_in_a_while() -> None:
    async def run() -> None:
        cluster, clock = Cluster(), Clock()
        known = reviews(cluster, clock)
        many = await asyncio.gather(*(known.person("user-ann") for _ in range(50)))
        assert {each and each.name for each in many} == {"ann"}
        assert len(cluster.asked) == 1
        clock.now_s = KNOWN_S + 0.1
        await known.person("user-ann")
        assert len(cluster.asked) == 2
        assert await known.person("wrong") is None
        assert await known.person("wrong") is None
        assert len(cluster.asked) == 3
        clock.now_s += UNKNOWN_S + 0.1
        await known.person("wrong")
        assert len(cluster.asked) == 4

    asyncio.run(run())


def test_a_flood_of_wrong_tokens_is_bounded() -> None:
    async def run() -> None:
        cluster = Cluster()
        known = reviews(cluster)
        asked = [known.person(f"wrong-{number}") for number in range(1000)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(each is None for each in answers) == MOST_WAITING
        assert sum(isinstance(each, UnavailableError) for each in answers) == 1000 - MOST_WAITING
        assert cluster.most_at_once <= AT_ONCE
        for number in range(MOST_KEPT + 10):
            await known.person(f"more-{number}")
        assert len(known._kept) == MOST_KEPT

    asyncio.run(run())


def test_what_is_no_token_is_not_asked_about() -> None:
    async def run() -> None:
        cluster = Cluster()
        for token in ("", "a b", "ä", "x" * 20_000, "a\x00"):
            assert await reviews(cluster).person(token) is None
        assert cluster.asked == []

    asyncio.run(run())


def test_a_cluster_that_is_silent_is_no_refusal_and_not_remembered() -> None:
    async def run() -> None:
        cluster = Cluster()
        known = reviews(cluster)
        cluster.is_down = True
        with pytest.raises(UnavailableError):
            await known.person("user-ann")
        cluster.is_down = False
        assert await known.person("user-ann") is not None

    asyncio.run(run())


def test_groups_say_who_may_come_in_and_who_is_an_administrator() -> None:
    async def run() -> None:
        known = reviews(Cluster())
        caller = await ClusterPeople(known).caller("user-ann")
        assert caller is not None
        assert (caller.user, caller.is_admin) == ("ann", False)
        admin = await ClusterPeople(known, admins=frozenset({"lab"})).caller("user-ann")
        assert admin is not None
        assert admin.is_admin
        with pytest.raises(ForbiddenError, match="ann is in none of the groups"):
            await ClusterPeople(known, users=frozenset({"other"})).caller("user-ann")
        root = await ClusterPeople(known).caller("user-root")
        assert root is not None
        assert (root.uid, root.is_admin) == (None, False)

    asyncio.run(run())
