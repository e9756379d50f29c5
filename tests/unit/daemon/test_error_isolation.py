"""Where many are looked after, a bug with one of them is told with its name, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from rota.core.model import Job, JobId
from rota.daemon import training
from rota.daemon.admission import Defaults
from rota.daemon.cards import Cards
from rota.daemon.foresight import Foresight
from rota.daemon.intake import Arrival as Intaken
from rota.daemon.membership import Membership
from rota.daemon.people import Caller, Reach
from rota.daemon.petitions import Ground, Petitions
from rota.daemon.plain_pods import PlainPods
from rota.daemon.rendezvous import Rendezvous
from rota.daemon.showing import keep_showing
from rota.daemon.training import Training
from rota.engines.kubernetes.api import Change
from rota.store.training_jobs import NOTHING_SHOWN
from rota.tasks import Tasks
from rota.wire.jobs import JobRequest
from rota_trainer.meetings import Arrival
from rota_trainer.messages import Report, to_json
from tests.builders import Lab, cluster, job, live_job
from tests.patience import PATIENCE_S
from tests.unit.daemon.test_membership import House
from tests.unit.engines.kubernetes.objects import Object

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
        self.shell: Any = SimpleNamespace(
            kernel=self.kernel, trouble="", changed=self._wait, require_sound=lambda: None
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
    return Caller("ada", reach=Reach.JOB, job_id=job_id)


def test_those_who_wait_at_a_barrier() -> None:
    async def scenario() -> None:
        desk, membership = Desk(), cast(Any, None)
        meetings = Rendezvous(desk.shell, membership, clock=lambda: 0.0)
        first = [
            asyncio.ensure_future(
                meetings.arrive(program(each), Arrival(0, host="h", port=1, wait_s=LONG_S))
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

    stumbles("those who wait for others could not be told", {"job": A})(scenario())


def test_those_who_wait_for_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TIDY_S", 0.0)

    async def scenario() -> None:
        desk = Desk()
        desk.shell.trouble = "nothing can be written"
        membership = Membership(desk.shell, clock=lambda: 0.0)
        desks = Training(desk.shell, membership, clock=lambda: 0.0, cards=Cards(dict))
        report = to_json(Report(1, 1, wait_s=LONG_S))
        first = [asyncio.ensure_future(desks.report(program(each), report)) for each in (A, B)]
        await asyncio.sleep(0)
        desk.change()
        running = asyncio.ensure_future(desks.run())
        await first[1]
        assert not running.done()
        for each in (running, first[0]):
            each.cancel()

    stumbles("a job that trains could not be looked at", {"job": A})(scenario())


def test_workers_that_never_speak() -> None:
    house, words = House(), list[str]()
    assert house.desk is not None

    def remark(job_id: JobId, told: str) -> None:
        if job_id == A:
            raise KeyError(job_id)
        words.append(told)

    house.desk.remark = remark
    for each in (A, B):
        house.run(live_job(each, gpus="1..2"))

    async def scenario() -> None:
        house.look(300)

    stumbles("the workers of a job could not be looked after", {"job": A})(scenario())
    assert len(words) == 1


def test_what_objects_say_of_their_jobs() -> None:
    async def scenario() -> None:
        desk, is_shown = Desk(), asyncio.Event()

        def why(job: Job) -> str:
            if job.id == A:
                raise KeyError(job.id)
            return "waits"

        async def look() -> None: ...

        asked: Any = SimpleNamespace(
            shell=desk.shell,
            clock=lambda: 0.0,
            why=why,
            foresight=SimpleNamespace(look=look, expected={}),
        )
        store: Any = SimpleNamespace(shown=lambda _: NOTHING_SHOWN, show=lambda *_: is_shown.set())
        running = asyncio.ensure_future(keep_showing(asked, store))
        await is_shown.wait()
        assert not running.done()
        running.cancel()

    stumbles("what is new of a job could not be shown", {"job": A})(scenario())


class Intake:
    """Stumbles over what is called `a`."""

    def __init__(self) -> None:
        self.stumbled, self.taken = asyncio.Event(), asyncio.Queue[str]()

    async def take_in(self, _: Caller, request: JobRequest, *, arrival: Intaken) -> JobId:
        if request.name == A:
            self.stumbled.set()
            raise KeyError("x")
        arrival.claim(JobId(request.name))
        self.taken.put_nowait(request.name)
        return JobId(request.name)


def asked(intake: Intake) -> Any:
    shell = SimpleNamespace(
        kernel=Lab().kernel, require_sound=lambda: None, changed=asyncio.Event().wait
    )
    return SimpleNamespace(shell=shell, clock=lambda: 0.0, intake=intake)


async def takes_in_the_others(
    subject: Petitions | PlainPods, intake: Intake, *, spec: Object
) -> None:
    def hear(name: str) -> None:
        subject.hear(Change("ADDED", {"metadata": {"name": name, "uid": name}, "spec": spec}))

    running = asyncio.ensure_future(subject.run())
    hear(A)
    await intake.stumbled.wait()
    hear(B)
    assert await intake.taken.get() == B
    assert not running.done()
    running.cancel()


def test_training_jobs_that_people_make() -> None:
    async def scenario() -> None:
        intake = Intake()
        store: Any = SimpleNamespace(
            has_made=lambda *_, **__: False, adopt=lambda *_: None, submission=lambda _: None
        )
        ground = Ground(b"key", "lab", lambda _: Defaults())
        resources: Any = None
        petitions = Petitions(asked(intake), store, resources=resources, ground=ground)
        await takes_in_the_others(petitions, intake, spec={"command": ["true"]})

    stumbles("a TrainingJob was left alone", {"object": A})(scenario())


def test_pods_that_people_make() -> None:
    async def scenario() -> None:
        intake = Intake()
        there: Any = SimpleNamespace(namespace="lab")
        pods = PlainPods(asked(intake), there, resources=there, gpu_resource="nvidia.com/gpu")
        spec = {"schedulerName": "rota", "containers": [{"name": "c", "image": "i"}]}
        await takes_in_the_others(pods, intake, spec=spec)

    stumbles("a pod was left alone", {"pod": A})(scenario())


def test_a_forecast_is_given_up_by_itself() -> None:
    async def scenario() -> None:
        lab = Lab()
        lab.submit(job(A))
        missed: list[BaseException] = []
        shell: Any = SimpleNamespace(
            kernel=lab.kernel,
            trouble="",
            policy=lab.policy,
            rounds=SimpleNamespace(count=1),
            tasks=Tasks(missed.append),
        )

        def clock() -> float:
            raise KeyError("x")

        foresight = Foresight(shell, clock)
        await foresight.look()
        await shell.tasks.close()
        assert (missed, foresight.expected) == ([], {})

    stumbles("work was given up", {"what": "a forecast"})(scenario())
