"""Token reviews: unique account names, and few requests."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import Any

import pytest

from rota.daemon.errors import ForbiddenError
from rota.errors import UnavailableError
from rota.kube.token_review import (
    INVALID_TTL_S,
    MAX_CACHED,
    MAX_CONCURRENT,
    MAX_PENDING,
    VALID_TTL_S,
    TokenReviewer,
    account_name,
    user_from_review,
)
from rota.server.cluster_auth import TokenReviewAuthenticator


class Cluster:
    """Authenticates every token that starts with `user-`."""

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


def reviews(cluster: Cluster, clock: Clock | None = None) -> TokenReviewer:
    return TokenReviewer(cluster, clock=clock or Clock())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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


def test_two_users_never_share_a_name() -> None:
    names = [account_name(each) for each in NAMES]
    assert all(one != other for one, other in combinations(names, 2))


@pytest.mark.parametrize("username", NAMES)
def test_a_name_is_valid_and_stable(username: str) -> None:
    name = account_name(username)
    assert name.replace("_", "").replace(".", "").replace("@", "").replace("-", "").isalnum()
    assert name.isascii()
    assert len(name) <= 80
    # No user can choose the account name of another user.
    assert name == username or account_name(name) != name


def test_ordinary_names() -> None:
    assert account_name("ann@lab.example") == "ann@lab.example"
    assert account_name("system:serviceaccount:team-a:trainer") == "sa.team-a.trainer"


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
def test_an_unauthenticated_review_has_no_user(status: dict[str, Any]) -> None:
    assert user_from_review(status) is None


def test_a_token_for_another_audience_is_rejected() -> None:
    status = {"authenticated": True, "user": {"username": "ann"}}
    assert user_from_review(status, audiences=("rota",)) is None
    assert user_from_review({**status, "audiences": ["other"]}, audiences=("rota",)) is None
    assert user_from_review({**status, "audiences": ["rota"]}, audiences=("rota",)) is not None


def test_a_review_is_cached() -> None:
    async def run() -> None:
        cluster, clock = Cluster(), Clock()
        known = reviews(cluster, clock)
        many = await asyncio.gather(*(known.authenticate("user-ann") for _ in range(50)))
        assert {each and each.name for each in many} == {"ann"}
        assert len(cluster.asked) == 1
        clock.now_s = VALID_TTL_S + 0.1
        await known.authenticate("user-ann")
        assert len(cluster.asked) == 2
        assert await known.authenticate("wrong") is None
        assert await known.authenticate("wrong") is None
        assert len(cluster.asked) == 3
        clock.now_s += INVALID_TTL_S + 0.1
        await known.authenticate("wrong")
        assert len(cluster.asked) == 4

    asyncio.run(run())


def test_a_flood_of_wrong_tokens_is_bounded() -> None:
    async def run() -> None:
        cluster = Cluster()
        known = reviews(cluster)
        asked = [known.authenticate(f"wrong-{number}") for number in range(1000)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(each is None for each in answers) == MAX_PENDING
        assert sum(isinstance(each, UnavailableError) for each in answers) == 1000 - MAX_PENDING
        assert cluster.most_at_once <= MAX_CONCURRENT
        for number in range(MAX_CACHED + 10):
            await known.authenticate(f"more-{number}")
        assert len(known._cache) == MAX_CACHED

    asyncio.run(run())


def test_an_invalid_token_is_not_reviewed() -> None:
    async def run() -> None:
        cluster = Cluster()
        for token in ("", "a b", "ä", "x" * 20_000, "a\x00"):
            assert await reviews(cluster).authenticate(token) is None
        assert cluster.asked == []

    asyncio.run(run())


def test_an_outage_is_an_error_and_is_not_cached() -> None:
    async def run() -> None:
        cluster = Cluster()
        known = reviews(cluster)
        cluster.is_down = True
        with pytest.raises(UnavailableError):
            await known.authenticate("user-ann")
        cluster.is_down = False
        assert await known.authenticate("user-ann") is not None

    asyncio.run(run())


def test_groups_decide_about_access_and_administrators() -> None:
    async def run() -> None:
        known = reviews(Cluster())
        caller = await TokenReviewAuthenticator(known).caller("user-ann")
        assert caller is not None
        assert (caller.user, caller.is_admin) == ("ann", False)
        admin = await TokenReviewAuthenticator(known, admins=frozenset({"lab"})).caller("user-ann")
        assert admin is not None
        assert admin.is_admin
        with pytest.raises(ForbiddenError, match="ann is in none of the groups"):
            await TokenReviewAuthenticator(known, users=frozenset({"other"})).caller("user-ann")
        root = await TokenReviewAuthenticator(known).caller("user-root")
        assert root is not None
        assert (root.uid, root.is_admin) == (None, False)

    asyncio.run(run())


def test_many_wrong_tokens_do_not_lock_out_a_known_user() -> None:
    async def scenario() -> None:
        cluster, clock = Cluster(), Clock()
        reviewer = reviews(cluster, clock)
        assert await reviewer.authenticate("user-ann")
        clock.now_s = VALID_TTL_S + 1
        wrong = [
            asyncio.ensure_future(reviewer.authenticate(f"wrong-{n}")) for n in range(MAX_PENDING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="too many token reviews"):
            await reviewer.authenticate("user-ben")
        known = await reviewer.authenticate("user-ann")
        assert known is not None
        assert known.name == "ann"
        assert not all(each.done() for each in wrong), "it did not wait for them"
        await asyncio.gather(*wrong)

    asyncio.run(scenario())
