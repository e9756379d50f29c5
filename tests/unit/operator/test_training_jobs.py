"""The API client for TrainingJobs: writes, conflicts and refusals."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.core.model.job import JobId
from rota.errors import UnavailableError, WriteRejectedError
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError, NotStoredYetError, is_oversized
from rota.kube.resources import Object, ResourceKind
from rota.operator import schema_check, training_jobs
from rota.operator.training_jobs import TrainingJobClient

STATUS: Object = {"record": "r"}


class Server:
    """Stores statuses, as far as its CRD has their fields."""

    namespace = "lab"

    def __init__(
        self, *terms: int, fields: frozenset[str] = schema_check.REQUIRED_STATUS_FIELDS
    ) -> None:
        self.found = {
            f"job-{n}": {
                "metadata": {"name": f"job-{n}", "resourceVersion": "1", "uid": str(n)},
                "status": {"term": term},
            }
            for n, term in enumerate(terms)
        }
        self._fields = fields
        self.answers: list[ApiError] = []
        """To who wants to make something."""
        self.against: dict[str, ApiError] = {}
        """What it has against statuses, by the names of the objects."""

    async def definition(self, _: ResourceKind) -> Object:
        properties = {"status": {"properties": {key: {} for key in self._fields}}}
        return {"properties": properties} if self._fields else {}

    async def list(self, *_: Any, **__: bool) -> tuple[list[Object], str]:
        if not self._fields:
            raise ApiError(404, "NotFound", "the cluster answered with 404")
        return list(self.found.values()), "1"

    async def get(self, kind: ResourceKind, name: str) -> Object:
        if kind.kind == "Secret":
            raise ApiError(404, "NotFound", "no such secret")
        return self.found[name]

    async def create(self, _: ResourceKind, body: Object, **__: bool) -> Object:
        if self.answers:
            raise self.answers.pop(0)
        return {"metadata": {**body["metadata"], "resourceVersion": "1", "uid": "new"}}

    async def replace(self, _: ResourceKind, body: Object, **__: str) -> Object:
        found = self.found[body["metadata"]["name"]]
        if found["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it has been modified")
        if error := self.against.get(body["metadata"]["name"]):
            raise error
        if is_oversized(found):
            raise ApiError(500, "", "etcdserver: request is too large")
        found["status"] = body["status"]
        return found

    async def patch(self, _: ResourceKind, name: str, **__: Any) -> Object:
        raise self.against[name]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_jobs, "FIRST_WAIT_S", 0.0)


def made(server: Server, *, term: int) -> TrainingJobClient:
    return TrainingJobClient(cast(KubeClient, server), lease=cast(Any, SimpleNamespace(term=term)))


@pytest.mark.parametrize(("lease", "written"), [(6, 6), (5, 6), (1, 6)])
def test_the_term_exceeds_all_stored_terms(lease: int, written: int) -> None:
    """Also after the lease was deleted and counts from one again."""

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


def test_the_first_listing_is_taken_once() -> None:
    async def scenario() -> None:
        ours = made(Server(1), term=1)
        assert ours.take_listing() is None
        found = await ours.all()
        assert ours.take_listing() == (found, "1")
        await ours.all()
        assert ours.take_listing() is None

    asyncio.run(scenario())


def test_an_outdated_crd_is_an_error() -> None:
    asyncio.run(made(Server(), term=1).check())
    with pytest.raises(UnavailableError, match="of another version"):
        asyncio.run(made(Server(fields=frozenset({"record"})), term=1).check())


def test_a_missing_crd_is_an_error() -> None:
    nowhere = made(Server(fields=frozenset()), term=1)
    for ask in (nowhere.check_schema, nowhere.check, nowhere.all):
        with pytest.raises(UnavailableError, match="has no CRD for TrainingJobs"):
            asyncio.run(ask())


@pytest.mark.parametrize(
    ("status", "reason", "said", "told"),
    [
        (403, "Forbidden", 'trainingjobs.rota.dev "a" is forbidden: exceeded quota: ten', "quota"),
        (422, "Invalid", 'TrainingJob.rota.dev "a" is invalid: spec.gpus: wrong', "spec.gpus"),
        (400, "", 'admission webhook "lab" denied the request: no image of ours', "lab"),
    ],
)
def test_a_refused_create_is_a_rejected_write(
    status: int, reason: str, said: str, told: str
) -> None:
    server = Server()
    server.answers = [ApiError(status, reason, said)]
    with pytest.raises(
        WriteRejectedError, match=f"refused to store the object: .*{told}"
    ) as refusal:
        asyncio.run(made(server, term=1).create({"metadata": {"name": "a"}}))
    assert '"a"' not in str(refusal.value)


def test_transient_errors_are_retried_and_a_missing_object_is_no_refusal() -> None:
    server = Server()
    server.answers = [ApiError(503, "", "busy"), ApiError(409, "Conflict", "the quota moved")]
    assert asyncio.run(made(server, term=1).create({"metadata": {"name": "a"}}))
    server.answers = [ApiError(404, "NotFound", "no such kind")]
    with pytest.raises(UnavailableError, match="no such kind"):
        asyncio.run(made(server, term=1).create({"metadata": {"name": "a"}}))


def test_an_object_that_replaced_ours_is_not_written() -> None:
    async def scenario() -> None:
        server = Server(1)
        ours = made(server, term=1)
        await ours.all()
        namesake: Object = {"name": "job-0", "resourceVersion": "2", "uid": "another"}
        server.found["job-0"] = {"metadata": namesake, "status": {}}
        assert not await ours.update("job-0", STATUS)
        assert server.found["job-0"]["status"] == {}

    asyncio.run(scenario())


def test_permanent_conflicts_reject_only_that_write() -> None:
    class Restless(Server):
        async def get(self, kind: ResourceKind, name: str) -> Object:
            found = await super().get(kind, name)
            before = {**found, "metadata": dict(found["metadata"])}
            version = int(found["metadata"]["resourceVersion"])
            found["metadata"]["resourceVersion"] = str(version + 1)
            return before

    async def scenario() -> None:
        server = Restless(1)
        ours = made(server, term=1)
        await ours.all()
        server.found["job-0"]["metadata"]["resourceVersion"] = "7"
        with pytest.raises(WriteRejectedError, match="changes too often"):
            await ours.update("job-0", STATUS)

    asyncio.run(scenario())


def test_an_oversized_object_rejects_only_its_own_writes() -> None:
    async def scenario() -> None:
        server = Server(1, 1)
        ours = made(server, term=1)
        await ours.all()
        theirs: Object = server.found["job-0"]["metadata"]
        theirs["finalizers"] = ["x" * 1000] * 1000
        assert not await ours.adopt("job-0", JobId("a"))
        with pytest.raises(WriteRejectedError, match="too large"):
            await ours.update("job-0", STATUS)
        assert await ours.update("job-1", STATUS)

    asyncio.run(scenario())


RULE = "ValidatingAdmissionPolicy 'lab' with binding 'lab' denied request: not in this lab"
RIGHT = 'User "rota" cannot update resource "trainingjobs/status" in API group "rota.dev"'


def test_a_policy_concerns_one_object_and_a_missing_permission_all() -> None:
    async def scenario() -> None:
        server = Server(1, 1)
        ours = made(server, term=1)
        await ours.all()
        prefix = 'the cluster refused: trainingjobs.rota.dev "job-0" is forbidden: '
        server.against["job-0"] = ApiError(422, "Invalid", f"{prefix}{RULE}")
        with pytest.raises(WriteRejectedError) as refusal:
            await ours.update("job-0", STATUS)
        assert refusal.value.message == f"the cluster refused to store its status: {RULE}"
        await ours.patch_status("job-0", {"reason": "refused"})
        await ours.report_refusal("job-0", "why")
        assert await ours.update("job-1", STATUS)
        server.against["job-0"] = ApiError(403, "Forbidden", f"{prefix}{RIGHT}")
        for deed in (ours.update, ours.patch_status):
            with pytest.raises(ApiError, match="cannot update"):
                await deed("job-0", STATUS)

    asyncio.run(scenario())


DOWN = ApiError(500, "InternalError", 'failed calling webhook "lab": connection refused')


def test_a_failing_webhook_rejects_only_its_object() -> None:
    """Whoever submits it tries again later; no other write waits for the webhook."""
    server = Server(1)
    server.answers = [DOWN] * 2
    ours = made(server, term=1)
    with pytest.raises(NotStoredYetError, match="failed calling webhook"):
        asyncio.run(ours.create({"metadata": {"name": "a"}}))
    server.against = {"job-0": DOWN}
    with pytest.raises(NotStoredYetError, match="cannot store its status now"):
        asyncio.run(ours.update("job-0", STATUS))
