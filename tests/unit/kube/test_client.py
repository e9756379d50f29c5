"""Requests and watches against a scripted server."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from rota.errors import RotaError, UserError
from rota.kube.auth import ClusterAccess
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.http import MAX_WAIT_S, retry_delay_s
from rota.kube.informer import Reflector
from rota.kube.resources import LEASES, PODS, ResourceScope, WatchEvent
from tests.support.kube_objects import Object, pod

Answer = tuple[int, Object | list[Object]]
Play = Callable[[KubeClient], Awaitable[None]]
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
    cluster = KubeClient(
        ClusterAccess(f"http://127.0.0.1:{port}", "lab", ssl.create_default_context())
    )
    try:
        async with asyncio.timeout(30):
            await play(cluster)
    finally:
        await cluster.close()
        await runner.cleanup()


def failure(code: int, reason: str) -> Answer:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": f"it is {reason}"}


def test_a_transient_error_is_retried() -> None:
    async def play(cluster: KubeClient) -> None:
        assert (await cluster.get(PODS, "a"))["metadata"]["uid"]

    found = [failure(503, "ServiceUnavailable"), failure(429, "TooManyRequests"), (200, pod())]
    assert served(found, play) == ["GET /api/v1/namespaces/lab/pods/a"] * 3


def test_a_create_that_may_have_worked_is_not_repeated() -> None:
    async def play(cluster: KubeClient) -> None:
        with pytest.raises(ApiError, match="it is InternalError") as refused:
            await cluster.create(PODS, {"metadata": {"name": "a"}})
        assert refused.value.is_transient

    answers = [failure(429, "TooManyRequests"), failure(500, "InternalError")]
    assert len(served(answers, play)) == 2


@pytest.mark.parametrize(
    "words",
    [
        "etcdserver: request is too large",
        "failed to create typed patch object (lab/a; v1, Kind=Pod): duplicate entries for key",
    ],
)
def test_an_invalid_object_is_not_retried(words: str) -> None:
    """Although the API server reports it as an internal error."""

    async def play(cluster: KubeClient) -> None:
        with pytest.raises(ApiError) as refused:
            await cluster.apply(PODS, {"metadata": {"name": "a"}})
        assert not refused.value.is_transient

    assert len(served([(500, {"kind": "Status", "code": 500, "message": words})], play)) == 1


def test_writes_that_a_watch_reports_request_metadata_only() -> None:
    accepted: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers["Accept"])
        return web.json_response({"metadata": {"uid": "u1"}})

    async def play(cluster: KubeClient) -> None:
        await cluster.amend(PODS, "a", body={"metadata": {}})
        await cluster.create(PODS, {"metadata": {"name": "a"}}, is_metadata_only=True)
        await cluster.create(PODS, {"metadata": {"name": "a"}})

    asyncio.run(with_server(answer, play))
    brief = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert accepted == [brief, brief, "application/json"]


def test_the_gate_blocks_writes_except_for_the_lease() -> None:
    def closed() -> None:
        raise RotaError("the lease is lost")

    async def play(cluster: KubeClient) -> None:
        gated = KubeClient(cluster.access, gate=closed)
        with pytest.raises(RotaError, match="the lease is lost"):
            await gated.delete(PODS, "a")
        await gated.create(LEASES, {"metadata": {"name": "l"}})
        await gated.close()

    asked = served([(201, {})], play)
    assert asked == ["POST /apis/coordination.k8s.io/v1/namespaces/lab/leases"]


def test_a_name_with_a_slash_is_rejected() -> None:
    async def play(cluster: KubeClient) -> None:
        for name in ("../secrets/x", "a/b", "", "a?b", "a..b"):
            with pytest.raises(UserError):
                await cluster.get(PODS, name)

    assert served([], play) == []


def test_an_expired_version_causes_a_list_without_repeated_events() -> None:
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

    async def play(cluster: KubeClient) -> None:
        done = asyncio.Event()

        def hear(change: WatchEvent) -> None:
            told.append((change.type, change.object["metadata"]["resourceVersion"]))
            if told[-1][1] == "9":
                done.set()

        reflector = Reflector(cluster, PODS, scope=ResourceScope("lab"), listener=hear)
        following = asyncio.ensure_future(reflector.run())
        await done.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    served(answers, play)
    assert told == [("ADDED", "5"), ("MODIFIED", "6"), ("MODIFIED", "9")]


def test_catch_up_lists_metadata_only() -> None:
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
        is_metadata_only = "PartialObjectMetadataList" in request.headers["Accept"]
        version = 6 if is_metadata_only else 5
        if is_metadata_only:
            is_asked.set()
        meta = {"resourceVersion": str(version)}
        return web.json_response({"metadata": meta, "items": [at(version)]})

    async def play(cluster: KubeClient) -> None:
        def hear(change: WatchEvent) -> None:
            told.append(change.object["metadata"]["resourceVersion"])

        reflector = Reflector(cluster, PODS, scope=ResourceScope("lab"), listener=hear)
        await reflector.sync()
        following = asyncio.ensure_future(reflector.run())
        await reflector.catch_up()
        assert told == ["5", "6"]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(with_server(answer, play))


def test_the_retry_delay_stays_bounded() -> None:
    assert 0.0 < retry_delay_s(100_000) <= MAX_WAIT_S
