"""Jobs: submit, list, show, cancel, hold, release, edit, resize, resubmit, move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Header, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from rota.api.auth import CallerDep
from rota.api.responses import (
    ERRORS,
    NameOrId,
    ServicesDep,
    json_response,
    large_json_response,
)
from rota.api.router import LazyRouter
from rota.api.strict_json import StrictRoute
from rota.core.lifecycle.states import JobState
from rota.daemon.jobs.job_selection import JobAction
from rota.store.records import JobFilter
from rota.thread_pools import STORE
from rota.wire.job_changes import ChangedJobs, JobEdit, JobSelection
from rota.wire.jobs import JobDetails, JobRequest, JobView, StoryEntry
from rota.wire.moves import MoveRequest
from rota.wire.submit_plan import SubmitPlan
from rota.wire.training import JobProfile

router = LazyRouter(prefix="/v1/jobs", tags=["jobs"], responses=ERRORS, route_class=StrictRoute)

MAX_PAGE = 1000
MAX_SMALL_PAGE = 200
"""Jobs that are serialized at once on the event loop, in a few milliseconds."""
MAX_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class Submitted:
    ids: list[str]


@dataclass(frozen=True, slots=True)
class Listed:
    """`next` is the value of `before` for the next page. `more` counts the jobs after this page, in
    the order of the queue."""

    jobs: list[JobView]
    next: int | None
    more: int


@dataclass(frozen=True, slots=True)
class Batched:
    jobs: list[JobRequest]


@dataclass(frozen=True, slots=True)
class Resize:
    """`gpus` null: the policy decides."""

    gpus: Annotated[int, Field(strict=True, ge=1, le=MAX_NUMBER)] | None


class ListQuery(BaseModel):
    """Filter of jobs. An empty field matches all jobs."""

    state: list[JobState] = []
    user: str = Field("", max_length=80)
    project: str = Field("", max_length=128)
    word: str = Field("", max_length=80)
    before: int | None = Field(None, ge=0, le=MAX_NUMBER)
    limit: int = Field(100, ge=1, le=MAX_PAGE)
    order: Literal["newest", "queue"] = "newest"
    skip: int = Field(0, ge=0, le=MAX_NUMBER)


Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        description="A repeated submit with the same key returns the jobs of the first submit.",
    ),
]


Origin = Annotated[
    str,
    Header(
        alias="Rota-Moved-From",
        max_length=200,
        description="The daemon that the job moved from, for its history.",
    ),
]
Reason = Annotated[
    str,
    Query(
        max_length=200,
        description="Reason for the history of the job (default: the name of the caller).",
    ),
]


@router.post("", status_code=201, response_model=Submitted, summary="Submit a job or an array")
async def submit(
    body: JobRequest,
    *,
    services: ServicesDep,
    caller: CallerDep,
    key: Key = "",
    origin: Origin = "",
) -> Response:
    ids = await services.submissions.submit(caller, [body], key=key, origin=origin)
    return json_response(Submitted([str(each) for each in ids]), status=201)


@router.post(
    "/batch", status_code=201, response_model=Submitted, summary="Submit many jobs, all or none"
)
async def submit_many(
    body: Batched, *, services: ServicesDep, caller: CallerDep, key: Key = ""
) -> Response:
    ids = await services.submissions.submit(caller, body.jobs, key=key)
    return json_response(Submitted([str(each) for each in ids]), status=201)


@router.post(
    "/move", response_model=list[JobView], summary="Move queued jobs to another daemon after a time"
)
async def move(body: MoveRequest, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.migrator.plan(caller, body))


@router.post("/check", response_model=list[JobView], summary="Check a submit without queueing jobs")
async def check(body: Batched, *, services: ServicesDep, caller: CallerDep) -> Response:
    return await large_json_response(await services.submissions.dry_run(caller, body.jobs))


@router.post(
    "/plan", response_model=SubmitPlan, summary="Plan a submit: where and when jobs would start"
)
async def plan(body: Batched, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.submit_plans.plan(caller, body.jobs))


@router.post("/cancel", response_model=ChangedJobs, summary="Cancel many jobs in one event")
async def cancel_many(body: JobSelection, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.job_service.change(caller, body, action=JobAction.CANCEL))


@router.post("/hold", response_model=ChangedJobs, summary="Hold many jobs in one event")
async def hold_many(body: JobSelection, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.job_service.change(caller, body, action=JobAction.HOLD))


@router.post("/release", response_model=ChangedJobs, summary="Release many jobs in one event")
async def release_many(body: JobSelection, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.job_service.change(caller, body, action=JobAction.RELEASE))


@router.get("", response_model=Listed, summary="List jobs")
async def list_jobs(
    query: Annotated[ListQuery, Query()], *, services: ServicesDep, caller: CallerDep
) -> Response:
    wanted = JobFilter(frozenset(query.state), query.user, query.project, query.word)
    if query.order == "queue" and query.before is None:
        found = await services.job_service.queue_page(
            caller, wanted, skip=query.skip, limit=query.limit
        )
        listed = Listed(found.jobs, found.next, found.more)
    else:
        page = await services.job_service.page(
            caller, wanted, before=query.before, limit=query.limit
        )
        listed = Listed(page.jobs, page.next, 0)
    is_large = len(listed.jobs) > MAX_SMALL_PAGE
    return await large_json_response(listed) if is_large else json_response(listed)


@router.get("/{word}", response_model=JobDetails, summary="Show a job")
async def show(word: NameOrId, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.job_service.details(caller, word))


@router.get(
    "/{word}/request",
    response_model=JobRequest,
    summary="The request that makes a copy of a job",
    operation_id="again_v1_jobs__word__request_get",
)
async def resubmit_request(word: NameOrId, *, services: ServicesDep, caller: CallerDep) -> Response:
    found = await STORE.run(services.submissions.resubmit_request, caller, word)
    return json_response(found)


@router.get(
    "/{word}/jobs",
    response_model=list[JobView],
    summary="The jobs that a word names",
)
async def named(word: NameOrId, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.job_service.named(caller, word))


@router.get("/{word}/profile", response_model=JobProfile, summary="Measurements of a job")
async def profile(word: NameOrId, *, services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(await services.job_service.profile(caller, word))


@router.get("/{word}/story", response_model=list[StoryEntry], summary="History of a job")
async def story(
    word: NameOrId,
    *,
    services: ServicesDep,
    caller: CallerDep,
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
) -> Response:
    job = await services.directory.find_async(caller, word)
    entries = services.history.entries
    found = await STORE.run(entries, caller, job.id, after=after, limit=limit)
    return json_response(found)


@router.post("/{word}/cancel", response_model=JobView, summary="Cancel a job")
async def cancel(
    word: NameOrId, *, services: ServicesDep, caller: CallerDep, reason: Reason = ""
) -> Response:
    job_service = services.job_service
    return json_response(
        await job_service.change_one(caller, word, action=JobAction.CANCEL, reason=reason)
    )


@router.post("/{word}/hold", response_model=JobView, summary="Hold a job")
async def hold(
    word: NameOrId, *, services: ServicesDep, caller: CallerDep, reason: Reason = ""
) -> Response:
    job_service = services.job_service
    return json_response(
        await job_service.change_one(caller, word, action=JobAction.HOLD, reason=reason)
    )


@router.post("/{word}/release", response_model=JobView, summary="Release a held job")
async def release(
    word: NameOrId, *, services: ServicesDep, caller: CallerDep, reason: Reason = ""
) -> Response:
    job_service = services.job_service
    return json_response(
        await job_service.change_one(caller, word, action=JobAction.RELEASE, reason=reason)
    )


@router.patch(
    "/{word}", response_model=list[JobView], summary="Edit a job, or all jobs of an array"
)
async def edit(
    word: NameOrId, body: JobEdit, *, services: ServicesDep, caller: CallerDep
) -> Response:
    return json_response(await services.job_service.edit(caller, word, edit=body))


@router.post("/{word}/resize", response_model=JobView, summary="Set the number of GPUs of a job")
async def resize(
    word: NameOrId, body: Resize, *, services: ServicesDep, caller: CallerDep
) -> Response:
    return json_response(await services.job_service.resize(caller, word, gpus=body.gpus))


@router.post(
    "/{word}/resubmit",
    status_code=201,
    response_model=Submitted,
    summary="Submit a copy",
)
async def resubmit(
    word: NameOrId, *, services: ServicesDep, caller: CallerDep, key: Key = ""
) -> Response:
    ids = await services.submissions.resubmit(caller, word, key=key)
    return json_response(Submitted([str(each) for each in ids]), status=201)
