"""Objects and pods that become jobs while the cluster cannot say whether it wrote that down: each
becomes one job, and none of them keeps the others waiting."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.model import JobId
from rota.daemon import petitions, plain_pods
from rota.daemon.farewells import Farewells
from rota.daemon.petitions import Ground, Petitions
from rota.daemon.plain_pods import PlainPods
from rota.daemon.programs import Saved, pack
from rota.engines.kubernetes.api import ApiError, Change, Object
from rota.errors import UnavailableError
from rota.store.records import Submission
from rota.store.training_jobs import JOB
from rota.wire.jobs import JobRequest
from tests.patience import PATIENCE_S

TURNS = 500
UNSURE = UnavailableError("who knows")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (petitions, plain_pods):
        monkeypatch.setattr(module, "PAUSE_S", 0.0)
    monkeypatch.setattr(plain_pods, "LOOK_S", 0.0)


@dataclass
class Cluster:
    """Objects and pods by name; what is claimed by a job bears its id once that is written."""

    there: dict[str, Object] = field(default_factory=dict[str, Object])
    jobs: dict[JobId, str] = field(default_factory=dict[JobId, str])
    """What they stand for: NAME/UID."""
    told: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    refused: str = ""
    """The claim that we may not look at."""
    namespace: str = "lab"
    is_sure: bool = True

    # -- the desk -------------------------------------------------------------------------------

    @property
    def desk(self) -> Any:
        shell = SimpleNamespace(
            require_sound=lambda: None,
            changed=asyncio.Event().wait,
            kernel=SimpleNamespace(jobs=self.jobs, job=lambda _: None),
        )
        store = SimpleNamespace(submission=self.submission)
        return SimpleNamespace(shell=shell, store=store, intake=self, clock=lambda: 0.0)

    async def take_in(self, _: Any, request: JobRequest, *, arrival: Any) -> JobId:
        job_id = JobId(f"job-{len(self.jobs)}")
        arrival.claim(job_id)
        self.jobs[job_id] = arrival.pod or f"{request.name}/uid-{request.name}"
        self.there[request.name]["metadata"]["labels"][JOB] = job_id
        is_sure, self.is_sure = self.is_sure, True
        if not is_sure:
            raise UNSURE
        return job_id

    def submission(self, job_id: JobId) -> Submission:
        saved = Saved(JobRequest(["p"]), pod=self.jobs[job_id])
        return Submission(job_id, "ada", 1000, pack(saved))

    # -- the API server, and what the store makes of it -----------------------------------------

    async def get(self, *which: Any) -> Object | None:
        if which[-1] == self.refused:
            raise ApiError(403, "Forbidden", f"claim {self.refused} may not be read")
        return self.there.get(which[-1])

    async def event(self, about: Object, *, reason: str, words: str, **_: Any) -> None:
        self.told.append((about["metadata"]["name"], f"{reason}: {words}"))

    def has_made(self, job_id: JobId, name: str, **_: Any) -> bool:
        return self.jobs.get(job_id, "").startswith(f"{name}/")

    def adopt(self, *_: Any) -> None:
        pass

    def shown(self, _: JobId) -> Any:
        return SimpleNamespace(observed=1)


def thing(name: str, **spec: Any) -> Object:
    meta = {"name": name, "uid": f"uid-{name}", "generation": 1, "labels": {}}
    return {"metadata": meta, "spec": spec, "status": {}}


def plain(name: str, **spec: Any) -> Object:
    main = {"name": "main", "command": ["python"]}
    return thing(name, schedulerName="rota", containers=[main], **spec)


def unheard(found: Object) -> Object:
    """As it was before anybody wrote anything onto it."""
    return {**found, "metadata": {**found["metadata"], "labels": {}}}


def play(part: Petitions | PlainPods, *found: Object) -> None:
    async def act() -> None:
        for each in found:
            part.hear(Change("ADDED", unheard(each)))
        running = asyncio.ensure_future(part.run())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()

    asyncio.run(act())


def test_an_object_that_was_taken_in_without_an_answer_is_one_job() -> None:
    mine = thing("mine", command=["python"])
    cluster: Any = Cluster({"mine": mine}, is_sure=False)
    ground = Ground(b"key", "lab", defaults=lambda _: pytest.fail("nothing is edited"))
    asked = Petitions(cluster.desk, cluster, resources=cluster, ground=ground)
    play(asked, mine)
    assert cluster.jobs == {"job-0": "mine/uid-mine"}


def test_a_pod_that_was_taken_in_without_an_answer_is_one_job() -> None:
    mine = plain("mine")
    cluster: Any = Cluster({"mine": mine}, is_sure=False)
    pods = PlainPods(cluster.desk, cluster, resources=cluster, gpu_resource="nvidia.com/gpu")
    play(pods, mine)
    assert cluster.jobs == {"job-0": "mine/uid-mine"}


def test_a_pod_that_we_may_not_look_into_keeps_nobody_waiting() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "secret"}}
    first, second = plain("first", volumes=[claim]), plain("second")
    cluster: Any = Cluster({"first": first, "second": second}, refused="secret")
    pods = PlainPods(cluster.desk, cluster, resources=cluster, gpu_resource="nvidia.com/gpu")
    play(pods, first, second)
    assert cluster.jobs == {"job-0": "second/uid-second"}
    assert cluster.told == [("first", "Waiting: claim secret may not be read")]


def test_an_object_that_may_not_be_told_is_let_go_when_its_job_is_over() -> None:
    async def scenario() -> None:
        let_go, changes, jobs = asyncio.Event(), asyncio.Queue[None](), {JobId("job-0"): "runs"}

        async def gone(*what: str) -> None:
            assert what == ("job-0", "mine")
            let_go.set()

        shell: Any = SimpleNamespace(changed=changes.get, kernel=SimpleNamespace(job=jobs.get))
        store: Any = SimpleNamespace(let_go=gone)
        farewells = Farewells(shell, store)
        farewells.wait_for(JobId("job-0"), "mine")
        running = asyncio.ensure_future(farewells.run())
        changes.put_nowait(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not let_go.is_set()
        jobs.clear()
        changes.put_nowait(None)
        async with asyncio.timeout(PATIENCE_S):
            await let_go.wait()
        running.cancel()

    asyncio.run(scenario())


def test_the_job_of_a_pod_that_went_while_nothing_could_be_written_is_cancelled() -> None:
    told: list[str] = []

    async def durable(_: object) -> None:
        if len(told) == 1:
            raise UNSURE

    mine = plain("mine")
    cluster: Any = Cluster({"mine": mine})
    desk = cluster.desk
    desk.shell.kernel.job = lambda _: SimpleNamespace(id="job-0", phase=None)
    desk.shell.tell = lambda event, **_: told.append(type(event).__name__)
    desk.shell.durable, desk.store.story = durable, lambda _: []
    pods = PlainPods(desk, cluster, resources=cluster, gpu_resource="nvidia.com/gpu")
    pods.hear(Change("ADDED", unheard(mine)))
    pods.hear(Change("DELETED", mine))
    play(pods)
    assert told == ["JobCancelled", "JobCancelled"]
