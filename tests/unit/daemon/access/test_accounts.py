"""Accounts of the jobs of a cluster's users."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.core.model.job import JobId
from rota.daemon.access.accounts import parse_accounts
from rota.daemon.launch.cluster import IMAGE_DEFAULT_UID, ClusterEnvironment
from rota.engines.interface import UnixAccount
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.jobs import JobRequest

SAYS = ["ada=1001:100:27+44", "eve@lab.example=1002:1002"]


def account(user: str, uid: int = IMAGE_DEFAULT_UID, *, says: list[str]) -> UnixAccount:
    nothing = cast("Any", None)
    known = parse_accounts(says)
    owners: Any = SimpleNamespace(owner=lambda _: ("", ""))
    nodes = ClusterEnvironment(nothing, None, "", (), False, owners, known)
    submission = Submission(JobId("job"), user, uid, "{}")
    return nodes.prepare(submission, JobRequest(command=["p"])).account


def test_a_mapped_user_has_the_mapped_account() -> None:
    for uid in (IMAGE_DEFAULT_UID, 0):
        found = account("ada", uid, says=SAYS)
        assert (found.name, found.uid, found.gid, found.groups) == ("ada", 1001, 100, (27, 44))
    assert account("eve@lab.example", says=SAYS).uid == 1002


def test_other_users_have_their_local_account_or_that_of_the_image() -> None:
    assert account("bob", 4242424, says=SAYS).uid == 4242424
    found = account("bob", says=SAYS)
    assert (found.name, found.uid) == ("bob", None)


def test_a_star_maps_all_other_users() -> None:
    found = account("bob", says=[*SAYS, "*=65534:65534"])
    assert (found.name, found.uid, found.gid) == ("bob", 65534, 65534)
    assert account("ada", says=[*SAYS, "*=65534:65534"]).uid == 1001
    assert account("bob", 4242424, says=["*=65534:65534"]).uid == 4242424, "who is known here"


@pytest.mark.parametrize(
    "entry",
    ["ada", "ada=", "ada=1", "ada=1:", "=1:1", "ada=-1:1", "ada=1:x", "ada=1:1:2,3", "ada=1:1:+",
     "ada=4294967296:1", "ada=²:1", "ada =1:1", " ada=1:1"],
)  # fmt: skip
def test_an_invalid_account_is_rejected(entry: str) -> None:
    with pytest.raises(UserError, match="NAME=UID:GID"):
        parse_accounts([entry])


def test_a_duplicate_user_is_rejected() -> None:
    with pytest.raises(UserError, match="a second time"):
        parse_accounts(["ada=1:1", "ada=2:2"])
