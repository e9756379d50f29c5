"""An error with one job or node is logged with its name, and the others are still handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from rota.core.model.job import Job, JobId
from rota.daemon.access.authorization import AccessScope, Caller
from rota.daemon.elastic.membership import MembershipService
from rota.daemon.elastic.torchrun_rendezvous import TorchrunRendezvous
from rota.daemon.jobs.admission import Defaults
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.submission import SubmitOptions as Intaken
from rota.daemon.training import report_service
from rota.daemon.training.gpu_memory import GpuMemoryMonitor
from rota.daemon.training.report_service import ReportService
from rota.daemon.training.worker_progress import RunningAttempts
from rota.engines.virtual.forecast import forecast_engine
from rota.kube.resources import WatchEvent
from rota.operator.pod_controller import PodController
from rota.operator.status_refresher import StatusRefresher
from rota.operator.training_job_controller import TrainingJobContext, TrainingJobController
from rota.server.backend import NoGpuInfo
from rota.store.kubernetes.crd_codec import NO_STATUS_DETAILS
from rota.tasks import Tasks
from rota.wire.jobs import JobRequest
from rota_trainer.reporting.messages import TrainingReport, to_json
from rota_trainer.torchrun.messages import ArriveRequest
from tests.support.builders import Lab, cluster, job, live_job
from tests.support.kube_objects import Object
from tests.support.timeouts import PATIENCE_S
from tests.unit.daemon.elastic.test_membership import House, Remarks

A, B = JobId("a"), JobId("b")
LONG_S = 1000.0


class Kernel:
    """Where there is a bug with the job `broken`."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.broken = ""

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        return self._lab.kernel.jobs

    def job(self, job_id: JobId) -> Job | None:
        if job_id == self.broken:
            raise KeyError(job_id)
        return self._lab.kernel.job(job_id)


class Desk:
    """With two jobs of two workers each, that run."""

    def __init__(self) -> None:
        self.lab = Lab(cluster("1x4"))
        for each in (A, B):
            self.lab.run(job(each, gpus=2))
        self.kernel, self._changed = Kernel(self.lab), asyncio.Event()
        self.controller: Any = SimpleNamespace(
            job=self.kernel.job,
            jobs=self.kernel.jobs,
            trouble="",
            changed=self._wait,
            require_available=lambda: None,
        )

    async def _wait(self) -> None:
        await self._changed.wait()

    def change(self) -> None:
        """The first is broken, and the second is over: those who wait there are to hear of it."""
        self.kernel.broken = A
        self.lab.exited(B)
        self._changed.set()
        self._changed = asyncio.Event()


def stumbles(what: str, whose: Mapping[str, str]) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a scenario in which there is this one bug."""

    def run(scenario: Coroutine[Any, Any, None]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await scenario

        with capture_logs() as lines:
            asyncio.run(bounded())
        [told] = [each for each in lines if each["log_level"] == "error"]
        assert told["exc_info"].__traceback__ is not None
        assert told.items() >= {"event": what, **whose}.items()

    return run


def program(job_id: JobId) -> Caller:
    return Caller("ada", scope=AccessScope.JOB, job_id=job_id)


def test_those_who_wait_at_a_barrier() -> None:
    async def scenario() -> None:
        desk, membership = Desk(), cast(Any, None)
        meetings = TorchrunRendezvous(desk.controller, membership, clock=lambda: 0.0)
        first = [
            asyncio.ensure_future(
                meetings.arrive(program(each), ArriveRequest(0, host="h", port=1, wait_s=LONG_S))
            )
            for each in (A, B)
        ]
        await asyncio.sleep(0)
        running = asyncio.ensure_future(meetings.run())
        await asyncio.sleep(0)
        desk.change()
        assert (await first[1]).state == "waiting"
        assert not running.done()
        for each in (running, first[0]):
            each.cancel()

    stumbles("rendezvous update failed", {"job": A})(scenario())


def test_those_who_wait_for_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_service, "TIDY_S", 0.0)

    async def scenario() -> None:
        desk = Desk()
        desk.controller.trouble = "nothing can be written"
        attempts = RunningAttempts()
        membership = MembershipService(desk.controller, attempts, clock=lambda: 0.0)
        desks = ReportService(
            desk.controller,
            membership,
            attempts=attempts,
            gpu_memory=GpuMemoryMonitor(NoGpuInfo()),
            clock=lambda: 0.0,
        )
        report = to_json(TrainingReport(1, 1, wait_s=LONG_S))
        first = [asyncio.ensure_future(desks.report(program(each), report)) for each in (A, B)]
        await asyncio.sleep(0)
        desk.change()
        running = asyncio.ensure_future(desks.run())
        await first[1]
        assert not running.done()
        for each in (running, first[0]):
            each.cancel()

    stumbles("training clean-up failed", {"job": A})(scenario())


def test_workers_that_never_speak() -> None:
    class Listener(Remarks):
        def remark(self, job_id: JobId, words: str) -> None:
            if job_id == A:
                raise KeyError(job_id)
            super().remark(job_id, words)

    house = House(listener=Listener())
    for each in (A, B):
        house.run(live_job(each, gpus="1..2"))

    async def scenario() -> None:
        house.look(300)

    stumbles("worker check failed", {"job": A})(scenario())
    assert len(house.listener.words) == 1


def test_what_objects_say_of_their_jobs() -> None:
    async def scenario() -> None:
        desk, is_shown = Desk(), asyncio.Event()

        def why(job: Job) -> str:
            if job.id == A:
                raise KeyError(job.id)
            return "waits"

        async def refresh() -> None: ...

        forecaster: Any = SimpleNamespace(refresh=refresh, expected={})
        reasons: Any = SimpleNamespace(why=why)
        store: Any = SimpleNamespace(
            status_details=lambda _: NO_STATUS_DETAILS,
            set_status_details=lambda *_: is_shown.set(),
        )
        refresher = StatusRefresher(
            desk.controller, store, forecaster=forecaster, reasons=reasons, clock=lambda: 0.0
        )
        running = asyncio.ensure_future(refresher.run())
        await is_shown.wait()
        assert not running.done()
        running.cancel()

    stumbles("job status not refreshed", {"job": A})(scenario())


class Intake:
    """Stumbles over what is called `a`."""

    def __init__(self) -> None:
        self.stumbled, self.taken = asyncio.Event(), asyncio.Queue[str]()

    async def submit_from_object(
        self, _: Caller, request: JobRequest, *, options: Intaken
    ) -> JobId:
        if request.name == A:
            self.stumbled.set()
            raise KeyError("x")
        options.on_job_id(JobId(request.name))
        self.taken.put_nowait(request.name)
        return JobId(request.name)


def idle_controller() -> Any:
    return SimpleNamespace(
        job=lambda _: None, jobs={}, require_available=lambda: None, changed=asyncio.Event().wait
    )


async def takes_in_the_others(
    subject: TrainingJobController | PodController, submission_service: Intake, *, spec: Object
) -> None:
    def hear(name: str) -> None:
        subject.on_change(
            WatchEvent("ADDED", {"metadata": {"name": name, "uid": name}, "spec": spec})
        )

    running = asyncio.ensure_future(subject.run())
    hear(A)
    await submission_service.stumbled.wait()
    hear(B)
    assert await submission_service.taken.get() == B
    assert not running.done()
    running.cancel()


def test_training_jobs_that_people_make() -> None:
    async def scenario() -> None:
        submission_service = Intake()
        store: Any = SimpleNamespace(
            is_own_object=lambda *_, **__: False, adopt=lambda *_: None, submission=lambda _: None
        )
        context = TrainingJobContext(b"key", "lab", lambda _: Defaults())
        resources: Any = None
        submissions: Any = submission_service
        controller = TrainingJobController(
            idle_controller(),
            submissions,
            store=store,
            resources=resources,
            context=context,
            clock=lambda: 0.0,
        )
        await takes_in_the_others(controller, submission_service, spec={"command": ["true"]})

    stumbles("TrainingJob not processed", {"object": A})(scenario())


def test_pods_that_people_make() -> None:
    async def scenario() -> None:
        submission_service = Intake()
        there: Any = SimpleNamespace(namespace="lab")
        submissions: Any = submission_service
        pods = PodController(
            idle_controller(),
            submissions,
            store=there,
            reasons=there,
            client=there,
            resources=there,
            gpu_resource="nvidia.com/gpu",
        )
        spec = {"schedulerName": "rota", "containers": [{"name": "c", "image": "i"}]}
        await takes_in_the_others(pods, submission_service, spec=spec)

    stumbles("pod not processed", {"pod": A})(scenario())


def test_a_forecast_is_given_up_by_itself() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.submit(job(A))
        missed: list[BaseException] = []
        controller: Any = SimpleNamespace(
            jobs=lab.kernel.jobs,
            nodes=lab.kernel.nodes,
            outcomes=lab.kernel.outcomes,
            rules=lab.kernel.rules,
            trouble="",
            policy=lab.policy,
            scheduling_loop=SimpleNamespace(count=1, stall=""),
            tasks=Tasks(missed.append),
        )

        def clock() -> float:
            raise KeyError("x")

        forecaster = Forecaster(controller, clock, engine_of=forecast_engine)
        await forecaster.refresh()
        await controller.tasks.close()
        assert (missed, forecaster.expected) == ([], {})

    stumbles("background task failed", {"what": "a forecast"})(scenario())
