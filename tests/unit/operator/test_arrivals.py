"""New TrainingJobs and pods while writes to the cluster fail: each becomes exactly one job, and
none delays the others."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.lifecycle.reducer import new_job
from rota.core.model.events import JobSubmitted
from rota.core.model.job import JobId
from rota.daemon.access.authorization import PriorityLimits, require_priority
from rota.daemon.jobs.admission import Defaults
from rota.daemon.launch.programs import SubmittedProgram, pack
from rota.errors import UnavailableError
from rota.kube.errors import ApiError, NotStoredYetError
from rota.kube.resources import Object, WatchEvent
from rota.operator import pod_controller, training_job_controller
from rota.operator.change_queue import MAX_KEPT_BYTES
from rota.operator.finalizers import FinalizerRemover
from rota.operator.pod_controller import PodController
from rota.operator.training_job_controller import TrainingJobContext, TrainingJobController
from rota.store.kubernetes.crd_codec import JOB, StatusDetails
from rota.store.records import Submission
from rota.wire.jobs import JobRequest
from tests.support.builders import cluster as nodes_of
from tests.support.builders import job
from tests.support.timeouts import PATIENCE_S

TURNS = 500
UNSURE = UnavailableError("who knows")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (training_job_controller, pod_controller):
        monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(pod_controller, "CHECK_INTERVAL_S", 0.0)


@dataclass
class Cluster:
    """Objects and pods by name. An adopted object carries the id of its job once that is
    written."""

    there: dict[str, Object] = field(default_factory=dict[str, Object])
    jobs: dict[JobId, str] = field(default_factory=dict[JobId, str])
    """What they stand for: NAME/UID."""
    told: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    refused: str = ""
    """The claim that we may not look at."""
    namespace: str = "lab"
    is_sure: bool = True

    # -- the job service ------------------------------------------------------------------------

    @property
    def controller(self) -> Any:
        return SimpleNamespace(
            require_available=lambda: None,
            changed=asyncio.Event().wait,
            jobs=self.jobs,
            job=lambda _: None,
        )

    def story(self, _: JobId) -> list[Any]:
        return []

    async def submit_from_object(self, _: Any, request: JobRequest, *, options: Any) -> JobId:
        job_id = JobId(f"job-{len(self.jobs)}")
        options.on_job_id(job_id)
        self.jobs[job_id] = options.pod or f"{request.name}/uid-{request.name}"
        self.there[request.name]["metadata"]["labels"][JOB] = job_id
        is_sure, self.is_sure = self.is_sure, True
        if not is_sure:
            raise UNSURE
        return job_id

    def submission(self, job_id: JobId) -> Submission:
        saved = SubmittedProgram(JobRequest(["p"]), pod=self.jobs[job_id])
        return Submission(job_id, "ada", 1000, pack(saved))

    # -- the API server and the store ----------------------------------------------------------

    async def get(self, *which: Any) -> Object | None:
        if which[-1] == self.refused:
            raise ApiError(403, "Forbidden", f"claim {self.refused} may not be read")
        return self.there.get(which[-1])

    async def event(self, about: Object, *, reason: str, message: str, **_: Any) -> None:
        self.told.append((about["metadata"]["name"], f"{reason}: {message}"))

    def is_own_object(self, job_id: JobId, name: str, **_: Any) -> bool:
        return self.jobs.get(job_id, "").startswith(f"{name}/")

    def adopt(self, *_: Any) -> None:
        pass

    def status_details(self, _: JobId) -> Any:
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


def play(part: TrainingJobController | PodController, *found: Object) -> None:
    async def act() -> None:
        for each in found:
            part.on_change(WatchEvent("ADDED", unheard(each)))
        running = asyncio.ensure_future(part.run())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()

    asyncio.run(act())


def pod_controller_of(cluster: Any, controller: Any) -> PodController:
    return PodController(
        controller,
        cluster,
        store=cluster,
        reasons=cluster,
        client=cluster,
        resources=cluster,
        gpu_resource="nvidia.com/gpu",
    )


def test_an_object_whose_submit_had_no_answer_is_one_job() -> None:
    mine = thing("mine", command=["python"])
    cluster: Any = Cluster({"mine": mine}, is_sure=False)
    context = TrainingJobContext(b"key", "lab", defaults=lambda _: pytest.fail("nothing is edited"))
    asked = TrainingJobController(
        cluster.controller,
        cluster,
        store=cluster,
        resources=cluster,
        context=context,
        clock=lambda: 0.0,
    )
    play(asked, mine)
    assert cluster.jobs == {"job-0": "mine/uid-mine"}


@pytest.mark.parametrize(("priority", "applied"), [(1, []), (-1, [-1])])
def test_an_edit_does_not_exceed_the_limit_of_priorities(priority: int, applied: list[int]) -> None:
    mine = thing("mine", command=["p"], priority=priority)
    mine["metadata"] |= {"generation": 2, "labels": {JOB: "job-0"}}
    cluster: Any = Cluster({"mine": mine}, {JobId("job-0"): "mine/uid-mine"})
    told: list[int] = []

    async def durable(_: object) -> None:
        pass

    controller = cluster.controller
    controller.job = lambda _: new_job(
        JobSubmitted(JobId("job-0"), job("mine", user="ada")), 0.0, known=None
    )
    controller.apply_event = lambda event, **_: told.append(event.priority)
    controller.durable = durable
    controller.nodes = {each.id: each for each in nodes_of("1x8 A100")}
    cluster.status_details = lambda _: StatusDetails(observed=1)
    cluster.set_status_details = lambda *_: None
    cluster.require_priority = partial(require_priority, limits=PriorityLimits())
    context = TrainingJobContext(b"key", "lab", defaults=lambda _: Defaults())
    edited = TrainingJobController(
        controller,
        cluster,
        store=cluster,
        resources=cluster,
        context=context,
        clock=lambda: 0.0,
    )

    async def act() -> None:
        edited.on_change(WatchEvent("MODIFIED", mine))
        running = asyncio.ensure_future(edited.run())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(act())
    assert told == applied
    assert any("priority: 1 is above the limit" in text for _, text in cluster.told) is (
        not applied
    )


def test_a_pod_whose_submit_had_no_answer_is_one_job() -> None:
    mine = plain("mine")
    cluster: Any = Cluster({"mine": mine}, is_sure=False)
    pods = pod_controller_of(cluster, cluster.controller)
    play(pods, mine)
    assert cluster.jobs == {"job-0": "mine/uid-mine"}


def test_a_pod_with_an_unreadable_claim_does_not_delay_others() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "secret"}}
    first, second = plain("first", volumes=[claim]), plain("second")
    cluster: Any = Cluster({"first": first, "second": second}, refused="secret")
    pods = pod_controller_of(cluster, cluster.controller)
    play(pods, first, second)
    assert cluster.jobs == {"job-0": "second/uid-second"}
    assert cluster.told == [("first", "Waiting: claim secret may not be read")]


def test_the_finalizer_is_removed_even_if_the_status_is_refused() -> None:
    async def scenario() -> None:
        remove_finalizer, changes, jobs = (
            asyncio.Event(),
            asyncio.Queue[None](),
            {JobId("job-0"): "runs"},
        )

        async def gone(*what: str) -> None:
            assert what == ("job-0", "mine")
            remove_finalizer.set()

        controller: Any = SimpleNamespace(changed=changes.get, job=jobs.get)
        store: Any = SimpleNamespace(remove_finalizer=gone)
        farewells = FinalizerRemover(controller, store)
        farewells.wait_for(JobId("job-0"), "mine")
        running = asyncio.ensure_future(farewells.run())
        changes.put_nowait(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not remove_finalizer.is_set()
        jobs.clear()
        changes.put_nowait(None)
        async with asyncio.timeout(PATIENCE_S):
            await remove_finalizer.wait()
        running.cancel()

    asyncio.run(scenario())


def test_a_finalizer_that_could_not_be_removed_is_removed_later() -> None:
    async def scenario() -> None:
        changes, tries = asyncio.Queue[None](), list[str]()

        async def gone(_: str, name: str) -> None:
            tries.append(name)
            if len(tries) == 1:
                raise ApiError(500, "InternalError", "a webhook is down")

        controller: Any = SimpleNamespace(changed=changes.get, job=lambda _: None)
        store: Any = SimpleNamespace(remove_finalizer=gone)
        remover = FinalizerRemover(controller, store)
        remover.wait_for(JobId("job-0"), "mine")
        running = asyncio.ensure_future(remover.run())
        for _ in range(3):
            changes.put_nowait(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        running.cancel()
        assert tries == ["mine", "mine"]

    asyncio.run(scenario())


def test_a_pod_deleted_during_an_outage_cancels_its_job() -> None:
    told: list[str] = []

    async def durable(_: object) -> None:
        if len(told) == 1:
            raise UNSURE

    mine = plain("mine")
    cluster: Any = Cluster({"mine": mine})
    controller = cluster.controller
    controller.job = lambda _: SimpleNamespace(id="job-0", phase=None)
    controller.apply_event = lambda event, **_: told.append(type(event).__name__)
    controller.durable = durable
    pods = pod_controller_of(cluster, controller)
    pods.on_change(WatchEvent("ADDED", unheard(mine)))
    pods.on_change(WatchEvent("DELETED", mine))
    play(pods)
    assert told == ["JobCancelled", "JobCancelled"]


def test_a_bug_with_one_object_is_reported_and_does_not_stop_the_others() -> None:
    first, second = plain("first"), plain("second")
    cluster: Any = Cluster({"first": first, "second": second})
    submit = cluster.submit_from_object

    async def fail(caller: Any, request: JobRequest, *, options: Any) -> JobId:
        if request.name == "first":
            raise OverflowError
        return await submit(caller, request, options=options)

    cluster.submit_from_object = fail
    pods = pod_controller_of(cluster, cluster.controller)
    play(pods, first, second)
    assert cluster.jobs == {"job-0": "second/uid-second"}
    [(name, words)] = cluster.told
    assert name == "first"
    assert "a bug in rota (OverflowError)" in words


def test_a_large_pod_is_read_again() -> None:
    large = plain("large", nodeSelector={"a": "x" * MAX_KEPT_BYTES})
    cluster: Any = Cluster({"large": large})
    pods = pod_controller_of(cluster, cluster.controller)
    play(pods, large)
    assert cluster.jobs == {"job-0": "large/uid-large"}


def test_an_object_that_cannot_be_stored_now_is_submitted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training_job_controller, "POSTPONED_S", 0.0)
    mine = thing("mine", command=["python"])
    cluster: Any = Cluster({"mine": mine})
    submit, tries = cluster.submit_from_object, list[str]()

    async def fail_once(caller: Any, request: JobRequest, *, options: Any) -> JobId:
        tries.append(request.name)
        if len(tries) == 1:
            raise NotStoredYetError("a webhook fails")
        return await submit(caller, request, options=options)

    cluster.submit_from_object = fail_once
    context = TrainingJobContext(b"key", "lab", defaults=lambda _: pytest.fail("nothing is edited"))
    asked = TrainingJobController(
        cluster.controller,
        cluster,
        store=cluster,
        resources=cluster,
        context=context,
        clock=lambda: 0.0,
    )
    play(asked, mine)
    assert tries == ["mine", "mine"]
    assert cluster.jobs == {"job-0": "mine/uid-mine"}
    assert cluster.told[0] == ("mine", "Waiting: a webhook fails")
