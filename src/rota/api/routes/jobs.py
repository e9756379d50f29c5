"""Jobs: submit, list, look, cancel, hold, release, resize, send again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from rota.api.answers import ERRORS, Reaches, Word, answer
from rota.api.auth import Asks
from rota.api.strict import StrictRoute
from rota.core.states import State
from rota.daemon import resizes
from rota.store.records import JobFilter
from rota.wire.jobs import JobDetails, JobRequest, JobView, StoryEntry
from rota.wire.moves import MoveRequest
from rota.wire.training import JobProfile

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=ERRORS, route_class=StrictRoute)

MOST_AT_ONCE = 1000
BIGGEST = 2**53


@dataclass(frozen=True, slots=True)
class Submitted:
    ids: list[str]


@dataclass(frozen=True, slots=True)
class Listed:
    """`next` asks for the page after this one, as `before`."""

    jobs: list[JobView]
    next: int | None


@dataclass(frozen=True, slots=True)
class Batched:
    jobs: list[JobRequest]


@dataclass(frozen=True, slots=True)
class Resize:
    """None leaves the size to the policy."""

    workers: Annotated[int, Field(strict=True, ge=1, le=BIGGEST)] | None


class ListQuery(BaseModel):
    """Which jobs; an empty field asks for nothing."""

    state: list[State] = []
    user: str = Field("", max_length=80)
    project: str = Field("", max_length=128)
    word: str = Field("", max_length=80)
    before: int | None = Field(None, ge=0, le=BIGGEST)
    limit: int = Field(100, ge=1, le=MOST_AT_ONCE)


Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        description="A submit that is sent again with the same key is the same job.",
    ),
]


Origin = Annotated[
    str,
    Header(
        alias="Rota-Moved-From",
        max_length=200,
        description="Where a job was before that is moved here, for its story.",
    ),
]
Reason = Annotated[
    str, Query(max_length=200, description="For the story; else it says who asked for it.")
]


@router.post("", status_code=201, response_model=Submitted, summary="Submit a job, or an array")
async def submit(
    body: JobRequest, *, house: Reaches, caller: Asks, key: Key = "", origin: Origin = ""
) -> Response:
    ids = await house.desk.submit(caller, [body], key=key, origin=origin)
    return answer(Submitted([str(each) for each in ids]), status=201)


@router.post("/batch", status_code=201, response_model=Submitted, summary="Many jobs, or none")
async def submit_many(body: Batched, *, house: Reaches, caller: Asks, key: Key = "") -> Response:
    ids = await house.desk.submit(caller, body.jobs, key=key)
    return answer(Submitted([str(each) for each in ids]), status=201)


@router.post("/move", response_model=list[JobView], summary="Let jobs go elsewhere if they wait")
async def move(body: MoveRequest, *, house: Reaches, caller: Asks) -> Response:
    return answer(await house.moves.plan(caller, body))


@router.post("/check", response_model=list[JobView], summary="What a submit would queue")
async def check(body: Batched, *, house: Reaches, caller: Asks) -> Response:
    return answer(house.desk.dry_run(caller, body.jobs))


@router.get("", response_model=Listed, summary="A page of jobs, the newest first")
async def list_jobs(
    query: Annotated[ListQuery, Query()], *, house: Reaches, caller: Asks
) -> Response:
    wanted = JobFilter(frozenset(query.state), query.user, query.project, query.word)
    await house.desk.foresight.look()
    page = house.desk.page(caller, wanted, before=query.before, limit=query.limit)
    return answer(Listed(page.jobs, page.next))


@router.get("/{word}", response_model=JobDetails, summary="All about a job")
async def show(word: Word, *, house: Reaches, caller: Asks) -> Response:
    await house.desk.foresight.look()
    return answer(house.desk.details(caller, word))


@router.get(
    "/{word}/request",
    response_model=JobRequest,
    summary="What makes the same job once more, here or elsewhere",
)
async def again(word: Word, *, house: Reaches, caller: Asks) -> Response:
    return answer(house.desk.again(caller, word))


@router.get("/{word}/profile", response_model=JobProfile, summary="What a job measured")
async def profile(word: Word, *, house: Reaches, caller: Asks) -> Response:
    return answer(house.desk.profile(caller, word))


@router.get("/{word}/story", response_model=list[StoryEntry], summary="What happened to a job")
async def story(
    word: Word,
    *,
    house: Reaches,
    caller: Asks,
    after: Annotated[int, Query(ge=0, le=BIGGEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = MOST_AT_ONCE,
) -> Response:
    job = house.desk.find(word, caller)
    return answer(house.desk.story(caller, job.id, after=after, limit=limit))


@router.post("/{word}/cancel", response_model=JobView, summary="End a job for good")
async def cancel(word: Word, *, house: Reaches, caller: Asks, reason: Reason = "") -> Response:
    return answer(await house.desk.cancel(caller, word, reason=reason))


@router.post("/{word}/hold", response_model=JobView, summary="Keep a job from running")
async def hold(word: Word, *, house: Reaches, caller: Asks, reason: Reason = "") -> Response:
    return answer(await house.desk.hold(caller, word, reason=reason))


@router.post("/{word}/release", response_model=JobView, summary="Let a held job run")
async def release(word: Word, *, house: Reaches, caller: Asks, reason: Reason = "") -> Response:
    return answer(await house.desk.release(caller, word, reason=reason))


@router.post("/{word}/resize", response_model=JobView, summary="Set how many workers a job has")
async def resize(word: Word, body: Resize, *, house: Reaches, caller: Asks) -> Response:
    return answer(await resizes.resize(house.desk, caller, word=word, workers=body.workers))


@router.post(
    "/{word}/resubmit", status_code=201, response_model=Submitted, summary="The same again"
)
async def resubmit(word: Word, *, house: Reaches, caller: Asks, key: Key = "") -> Response:
    ids = await house.desk.resubmit(caller, word, key=key)
    return answer(Submitted([str(each) for each in ids]), status=201)
