"""Objects as the API server keeps them, and who may write to them."""

import asyncio
from typing import Any, cast

import pytest

from rota.engines.kubernetes import resources
from rota.engines.kubernetes.api import ApiError, Cluster, Kind, Object
from rota.engines.kubernetes.resources import Resources
from rota.errors import UnavailableError, UserError

STATUS: Object = {"record": "r"}


class Server:
    """Keeps statuses, as far as its definition knows them."""

    namespace = "lab"

    def __init__(self, *terms: int, fields: frozenset[str] = resources.RELIED_UPON) -> None:
        self.found = {
            f"job-{n}": {
                "metadata": {"name": f"job-{n}", "resourceVersion": "1", "uid": str(n)},
                "status": {"term": term},
            }
            for n, term in enumerate(terms)
        }
        self._fields = fields

    async def definition(self, _: Kind) -> Object:
        properties = {"status": {"properties": {key: {} for key in self._fields}}}
        return {"properties": properties} if self._fields else {}

    async def list(self, *_: Any) -> tuple[list[Object], str]:
        if not self._fields:
            raise ApiError(404, "NotFound", "the cluster answered with 404")
        return list(self.found.values()), "1"

    async def get(self, kind: Kind, name: str) -> Object:
        if kind.kind == "Secret":
            raise ApiError(404, "NotFound", "no such secret")
        return self.found[name]

    async def patch(self, _: Kind, name: str, *, body: Object, **__: str) -> Object:
        self.found[name]["status"] = body["status"]
        return self.found[name]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "FIRST_WAIT_S", 0.0)


def made(server: Server, *, term: int) -> Resources:
    return Resources(cast(Cluster, server), term=lambda: term)


@pytest.mark.parametrize(("lease", "written"), [(6, 6), (5, 6), (1, 6)])
def test_who_begins_comes_after_all_who_wrote_before(lease: int, written: int) -> None:
    """Also where somebody deleted the lease, and the next one counts from one."""

    async def scenario() -> None:
        server = Server(5, 3)
        ours = made(server, term=lease)
        await ours.all()
        assert await ours.update("job-0", STATUS)
        assert server.found["job-0"]["status"]["term"] == written
        await ours.all()
        assert await ours.update("job-1", STATUS)
        assert server.found["job-1"]["status"]["term"] == written

    asyncio.run(scenario())


def test_a_definition_that_drops_what_a_job_needs_is_told() -> None:
    asyncio.run(made(Server(), term=1).check())
    with pytest.raises(UnavailableError, match="of another version"):
        asyncio.run(made(Server(fields=frozenset({"record"})), term=1).check())


def test_a_cluster_that_has_no_definition_is_told_by_who_reads() -> None:
    nowhere = made(Server(fields=frozenset()), term=1)
    asyncio.run(nowhere.check())
    with pytest.raises(UserError, match="does not know what a TrainingJob is"):
        asyncio.run(nowhere.all())
