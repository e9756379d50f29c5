"""Who may call the daemon, and what each caller may do."""

from __future__ import annotations

import pytest

from rota.core.model.job import Job, JobId
from rota.daemon.access.authorization import (
    AccessScope,
    Caller,
    PriorityLimits,
    caller_of_groups,
    caller_of_uid,
    job_scope,
    may_manage_tokens,
    may_name,
    may_run_as,
    may_see,
    may_see_all,
    require_job_token,
    require_move_target,
    require_owner_or_admin,
    require_priority,
    require_submitter,
    require_token_creator,
    uid_of_jobs,
)
from rota.daemon.errors import ForbiddenError, RefusedError
from tests.support.builders import Lab, cluster, job

ADA, EVE = Caller("ada"), Caller("eve")
ADMIN = Caller("root", is_admin=True)
READER = Caller("ada", scope=AccessScope.READ_ONLY)
OWN_TOKEN = Caller("ada", scope=AccessScope.JOB, job_id=JobId("a"))
OTHER_TOKEN = Caller("ada", scope=AccessScope.JOB, job_id=JobId("b"))
HINT = "use a token"


@pytest.fixture(name="ada_job")
def job_of_ada() -> Job:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a", user="ada"))
    return lab.job("a")


@pytest.mark.parametrize(
    ("uid", "daemon_uid", "expected"),
    [
        (0, 1000, Caller("ada", 0, is_admin=True)),
        (1000, 1000, Caller("ada", 1000, is_admin=True)),
        (1001, 1000, None),
        (1001, 0, Caller("ada", 1001)),
    ],
)
def test_callers_of_a_unix_socket(uid: int, daemon_uid: int, expected: Caller | None) -> None:
    assert caller_of_uid("ada", uid, daemon_uid=daemon_uid, admins=frozenset()) == expected


def test_the_setting_admins_names_administrators() -> None:
    found = caller_of_uid("ada", 1001, daemon_uid=0, admins=frozenset({"ada"}))
    assert found == Caller("ada", 1001, is_admin=True)


@pytest.mark.parametrize(
    ("user_groups", "admin_groups", "expected"),
    [
        ((), (), Caller("ada")),
        (("lab",), (), Caller("ada")),
        (("other",), (), None),
        (("other",), ("lab",), Caller("ada", is_admin=True)),
    ],
)
def test_callers_of_a_cluster(
    user_groups: tuple[str, ...], admin_groups: tuple[str, ...], expected: Caller | None
) -> None:
    found = caller_of_groups(
        "ada",
        frozenset({"lab"}),
        user_groups=frozenset(user_groups),
        admin_groups=frozenset(admin_groups),
    )
    assert found == expected


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (ADA, True),
        (READER, True),
        (ADMIN, True),
        (OWN_TOKEN, True),
        (EVE, False),
        (OTHER_TOKEN, False),
    ],
)
def test_only_owner_administrators_and_the_job_itself_see_a_job(
    ada_job: Job, caller: Caller, expected: bool
) -> None:
    assert may_see(caller, ada_job) is expected
    if not expected:
        with pytest.raises(ForbiddenError, match="belongs to ada"):
            require_owner_or_admin(caller, ada_job)


def test_only_the_submitter_submits_a_job_again(ada_job: Job) -> None:
    require_submitter(ADA, ada_job)
    with pytest.raises(ForbiddenError, match="would run as root"):
        require_submitter(ADMIN, ada_job)
    with pytest.raises(ForbiddenError, match="belongs to ada"):
        require_submitter(EVE, ada_job)


def test_the_token_of_a_job_is_for_that_job_only() -> None:
    assert (job_scope(OWN_TOKEN), job_scope(ADA)) == ("a", None)
    assert may_name(OWN_TOKEN, "a")
    assert not may_name(OWN_TOKEN, "b")
    assert may_name(ADA, "b")


def test_only_a_job_token_passes_as_a_job() -> None:
    jobs = {JobId("a"): "found"}
    assert require_job_token(OWN_TOKEN, jobs.get, action="report", hint=HINT) == "found"
    for caller in (ADA, ADMIN, OTHER_TOKEN):
        with pytest.raises(ForbiddenError, match="only a job may report"):
            require_job_token(caller, jobs.get, action="report", hint=HINT)


def test_only_administrators_see_all_jobs_and_manage_tokens_of_others() -> None:
    assert may_see_all(ADMIN)
    assert not may_see_all(ADA)
    assert may_manage_tokens(ADMIN, "ada")
    assert may_manage_tokens(ADA, "ada")
    assert not may_manage_tokens(EVE, "ada")
    require_token_creator(ADA, "ada")
    require_token_creator(ADMIN, "ada")
    for caller, user in ((EVE, "ada"), (READER, "ada")):
        with pytest.raises(ForbiddenError):
            require_token_creator(caller, user)


@pytest.mark.parametrize(
    ("uid", "daemon_uid", "expected"),
    [
        (1000, 0, True),
        (0, 0, False),  # No token runs jobs as root,
        (None, 0, False),  # nor as a user without an account.
        (None, 1000, True),  # All jobs run as the daemon's own user.
    ],
)
def test_accounts_that_a_token_may_use(uid: int | None, daemon_uid: int, *, expected: bool) -> None:
    assert may_run_as(uid, daemon_uid=daemon_uid) is expected


def test_a_caller_without_an_account_runs_no_job_at_a_daemon_of_root() -> None:
    assert uid_of_jobs(Caller("ada", 1000), daemon_uid=0) == 1000
    assert uid_of_jobs(Caller("ada"), daemon_uid=1001) == 1001
    with pytest.raises(ForbiddenError, match="no account ada"):
        uid_of_jobs(Caller("ada"), daemon_uid=0)


def test_jobs_move_to_allowed_targets_only() -> None:
    require_move_target("https://b", frozenset())
    require_move_target("https://b", frozenset({"https://b"}))
    with pytest.raises(ForbiddenError, match="moving jobs to https://c is not allowed"):
        require_move_target("https://c", frozenset({"https://b"}))


@pytest.mark.parametrize(
    ("caller", "priority", "current", "refusal"),
    [
        (ADA, 0, None, ""),
        (ADA, -5, None, ""),
        (ADA, 1, None, "1 is above the limit of 0 for users; .* administrator may"),
        (ADMIN, 100, None, ""),
        (ADMIN, 101, None, "101 is above the limit of 100 for .* raise the setting"),
        # A lower priority than that of the job is always allowed.
        (ADA, 40, 50, ""),
        (ADA, 51, 50, "51 is above the limit of 0"),
    ],
)
def test_priorities_have_limits(
    caller: Caller, priority: int, current: int | None, refusal: str
) -> None:
    limits = PriorityLimits()
    if not refusal:
        return require_priority(caller, priority, limits=limits, current=current)
    with pytest.raises(RefusedError, match=refusal):
        require_priority(caller, priority, limits=limits, current=current)
    return None


def test_limits_of_priorities_are_settings() -> None:
    require_priority(ADA, 7, limits=PriorityLimits(of_users=7))
    with pytest.raises(RefusedError, match="limit of 5 for administrators"):
        require_priority(ADMIN, 6, limits=PriorityLimits(of_users=7, of_admins=5))
