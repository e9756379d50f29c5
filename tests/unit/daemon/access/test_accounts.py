"""As whom the jobs of a cluster's users run."""

import asyncio
from typing import Any, cast

import pytest

from rota.core.model import JobId
from rota.daemon.identities import parse_accounts
from rota.daemon.premises import NOBODY_IN_PARTICULAR, Nodes
from rota.engines.base import Account
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.jobs import JobRequest

SAYS = ["ada=1001:100:27+44", "eve@lab.example=1002:1002"]


def account(user: str, uid: int = NOBODY_IN_PARTICULAR, *, says: list[str]) -> Account:
    nothing = cast("Any", None)
    known = parse_accounts(says)
    nodes = Nodes(nothing, None, "", (), False, lambda _: ("", ""), known)
    submission = Submission(JobId("job"), user, uid, "{}")
    return asyncio.run(nodes.fit_out(submission, JobRequest(command=["p"]))).account


def test_whoever_is_named_runs_as_said_whoever_they_are_here() -> None:
    for uid in (NOBODY_IN_PARTICULAR, 0):
        found = account("ada", uid, says=SAYS)
        assert (found.name, found.uid, found.gid, found.groups) == ("ada", 1001, 100, (27, 44))
    assert account("eve@lab.example", says=SAYS).uid == 1002


def test_whoever_is_not_named_runs_as_here_or_as_the_image_says() -> None:
    assert account("bob", 4242424, says=SAYS).uid == 4242424
    found = account("bob", says=SAYS)
    assert (found.name, found.uid) == ("bob", None)


def test_everybody_else_can_be_named_together() -> None:
    found = account("bob", says=[*SAYS, "*=65534:65534"])
    assert (found.name, found.uid, found.gid) == ("bob", 65534, 65534)
    assert account("ada", says=[*SAYS, "*=65534:65534"]).uid == 1001
    assert account("bob", 4242424, says=["*=65534:65534"]).uid == 4242424, "who is known here"


@pytest.mark.parametrize(
    "entry",
    ["ada", "ada=", "ada=1", "ada=1:", "=1:1", "ada=-1:1", "ada=1:x", "ada=1:1:2,3", "ada=1:1:+",
     "ada=4294967296:1", "ada=²:1", "ada =1:1", " ada=1:1"],
)  # fmt: skip
def test_what_is_no_account_is_refused(entry: str) -> None:
    with pytest.raises(UserError, match="NAME=UID:GID"):
        parse_accounts([entry])


def test_nobody_is_named_twice() -> None:
    with pytest.raises(UserError, match="a second time"):
        parse_accounts(["ada=1:1", "ada=2:2"])
