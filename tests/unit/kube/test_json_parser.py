"""JSON that is nested too deeply for a decoder is read without its deep values."""

import asyncio
import json

import pytest
from aiohttp import web

from rota.kube.client import KubeClient
from rota.kube.json_parser import MAX_DEPTH, parse_json
from rota.kube.resources import PODS, ResourceScope
from tests.unit.kube.test_client import with_server

DEPTH = 9_000


def nested(depth: int, opening: str = '{"f:x":', closing: str = "}") -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize(
    "deep", [nested(DEPTH), nested(DEPTH, "[", "]"), nested(DEPTH, '[{"a":"]}\\"",  "b":', "}]")]
)
def test_the_other_values_are_kept(deep: str) -> None:
    text = f'{{"first": [1, "]}}\\\\"], "deep": {deep}, "last": {{"a": [{{}}, "b"]}}}}'
    found = parse_json(text.encode())
    assert (found["first"], found["last"]) == ([1, "]}\\"], {"a": [{}, "b"]})
    depth, value = 0, found["deep"]
    while value is not None:
        value = value[0] if isinstance(value, list) else value[list(value)[-1]]
        depth += 1
    assert depth == MAX_DEPTH - 1


def test_a_usual_object_is_decoded_as_it_is() -> None:
    usual = {"a": [1, {"b": None}], "c": json.loads(nested(MAX_DEPTH * 2))}
    assert parse_json(json.dumps(usual).encode()) == usual


def test_a_list_with_a_deep_object_is_read() -> None:
    """The API server accepts such managedFields of any user who may create an object."""
    deep = f'{{"metadata": {{"name": "a", "managedFields": [{{"fieldsV1": {nested(DEPTH)}}}]}}}}'
    items = f'[{deep}, {{"metadata": {{"name": "b"}}}}]'
    names: list[str] = []

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=f'{{"items": {items}, "metadata": {{"resourceVersion": "7"}}}}')

    async def play(cluster: KubeClient) -> None:
        found, _ = await cluster.list(PODS, ResourceScope("lab"))
        names.extend(each["metadata"]["name"] for each in found)

    asyncio.run(with_server(answer, play))
    assert names == ["a", "b"]


def test_a_watch_with_a_deep_object_continues() -> None:
    deep = (
        f'{{"type": "ADDED", "object": {{"metadata": {{"name": "a", "deep": {nested(DEPTH)}}}}}}}'
    )
    names: list[str] = []

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=f"{deep}\n{deep}\n")

    async def play(cluster: KubeClient) -> None:
        watch = cluster.watch(PODS, ResourceScope("lab"), version="1")
        names.extend([change.object["metadata"]["name"] async for change in watch])

    asyncio.run(with_server(answer, play))
    assert names == ["a", "a"]
