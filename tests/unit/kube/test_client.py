"""Requests and watches, against a server that is told what to answer."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from rota.engines.kubernetes.api import LEASES, PODS, Access, ApiError, Change, Cluster, Scope
from rota.engines.kubernetes.transport import LONGEST_WAIT_S, wait_s
from rota.engines.kubernetes.watch import Reflector
from rota.errors import RotaError, UserError
from tests.unit.engines.kubernetes.objects import Object, pod

Answer = tuple[int, Object | list[Object]]
Play = Callable[[Cluster], Awaitable[None]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def served(answers: list[Answer], play: Play) -> list[str]:
    """Gives one answer after the other; a list is a watch. What was asked for, in order."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.method} {request.path}")
        status, said = answers.pop(0) if answers else failure(503, "ServiceUnavailable")
        lines = said if isinstance(said, list) else [said]
        return web.Response(status=status, text="\n".join(map(json.dumps, lines)) + "\n")

    asyncio.run(with_server(answer, play))
    return asked


async def with_server(answer: Handler, play: Play) -> None:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    cluster = Cluster(Access(f"http://127.0.0.1:{port}", "lab", ssl.create_default_context()))
    try:
        async with asyncio.timeout(30):
            await play(cluster)
    finally:
        await cluster.close()
        await runner.cleanup()


def failure(code: int, reason: str) -> Answer:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": f"it is {reason}"}


def test_what_passes_is_tried_again() -> None:
    async def play(cluster: Cluster) -> None:
        assert (await cluster.get(PODS, "a"))["metadata"]["uid"]

    found = [failure(503, "ServiceUnavailable"), failure(429, "TooManyRequests"), (200, pod())]
    assert served(found, play) == ["GET /api/v1/namespaces/lab/pods/a"] * 3


def test_a_create_that_may_have_worked_is_not_repeated() -> None:
    async def play(cluster: Cluster) -> None:
        with pytest.raises(ApiError, match="it is InternalError") as refused:
            await cluster.create(PODS, {"metadata": {"name": "a"}})
        assert refused.value.is_passing

    answers = [failure(429, "TooManyRequests"), failure(500, "InternalError")]
    assert len(served(answers, play)) == 2


@pytest.mark.parametrize(
    "words",
    [
        "etcdserver: request is too large",
        "failed to create typed patch object (lab/a; v1, Kind=Pod): duplicate entries for key",
    ],
)
def test_what_is_wrong_with_an_object_is_not_tried_again(words: str) -> None:
    """Although it is told as if it were the server's own mistake."""

    async def play(cluster: Cluster) -> None:
        with pytest.raises(ApiError) as refused:
            await cluster.apply(PODS, {"metadata": {"name": "a"}})
        assert not refused.value.is_passing

    assert len(served([(500, {"kind": "Status", "code": 500, "message": words})], play)) == 1


def test_of_what_a_watch_tells_anyway_only_the_metadata_is_answered() -> None:
    accepted: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers["Accept"])
        return web.json_response({"metadata": {"uid": "u1"}})

    async def play(cluster: Cluster) -> None:
        await cluster.amend(PODS, "a", body={"metadata": {}})
        await cluster.create(PODS, {"metadata": {"name": "a"}}, is_brief=True)
        await cluster.create(PODS, {"metadata": {"name": "a"}})

    asyncio.run(with_server(answer, play))
    brief = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert accepted == [brief, brief, "application/json"]


def test_who_may_not_command_sends_nothing_but_may_ask_for_the_lease() -> None:
    def closed() -> None:
        raise RotaError("the lease is lost")

    async def play(cluster: Cluster) -> None:
        cluster.gate = closed
        with pytest.raises(RotaError, match="the lease is lost"):
            await cluster.delete(PODS, "a")
        await cluster.create(LEASES, {"metadata": {"name": "l"}})

    asked = served([(201, {})], play)
    assert asked == ["POST /apis/coordination.k8s.io/v1/namespaces/lab/leases"]


def test_a_name_is_never_a_path() -> None:
    async def play(cluster: Cluster) -> None:
        for name in ("../secrets/x", "a/b", "", "a?b", "a..b"):
            with pytest.raises(UserError):
                await cluster.get(PODS, name)

    assert served([], play) == []


def test_a_version_that_is_too_old_is_made_good_without_telling_twice() -> None:
    def at(version: int) -> Object:
        return pod(meta={"resourceVersion": str(version)})

    def listed(version: int) -> Answer:
        return 200, {"metadata": {"resourceVersion": str(version)}, "items": [at(version)]}

    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    expired = {"type": "ERROR", "object": failure(410, "Expired")[1]}
    answers: list[Answer] = [
        listed(5),
        (200, [{"type": "MODIFIED", "object": at(6)}, bookmark, expired]),
        (200, {"metadata": {"resourceVersion": "8"}, "items": [at(6)]}),
        (200, [{"type": "MODIFIED", "object": at(9)}]),
    ]
    told: list[tuple[str, str]] = []

    async def play(cluster: Cluster) -> None:
        done = asyncio.Event()

        def hear(change: Change) -> None:
            told.append((change.type, change.object["metadata"]["resourceVersion"]))
            if told[-1][1] == "9":
                done.set()

        reflector = Reflector(cluster, PODS, scope=Scope("lab"), listener=hear)
        following = asyncio.ensure_future(reflector.run())
        await done.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    served(answers, play)
    assert told == [("ADDED", "5"), ("MODIFIED", "6"), ("MODIFIED", "9")]


def test_who_followed_catches_up_with_names_and_versions_alone() -> None:
    def at(version: int) -> Object:
        return pod(meta={"resourceVersion": str(version)})

    told: list[str] = []
    is_asked = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            # What the list says already, the watch tells a little later.
            await is_asked.wait()
            change = {"type": "MODIFIED", "object": at(6)}
            return web.Response(text=f"{json.dumps(change)}\n")
        is_brief = "PartialObjectMetadataList" in request.headers["Accept"]
        version = 6 if is_brief else 5
        if is_brief:
            is_asked.set()
        meta = {"resourceVersion": str(version)}
        return web.json_response({"metadata": meta, "items": [at(version)]})

    async def play(cluster: Cluster) -> None:
        def hear(change: Change) -> None:
            told.append(change.object["metadata"]["resourceVersion"])

        reflector = Reflector(cluster, PODS, scope=Scope("lab"), listener=hear)
        await reflector.sync()
        following = asyncio.ensure_future(reflector.run())
        await reflector.catch_up()
        assert told == ["5", "6"]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(with_server(answer, play))


def test_what_is_tried_for_days_is_still_tried() -> None:
    assert 0.0 < wait_s(100_000) <= LONGEST_WAIT_S
