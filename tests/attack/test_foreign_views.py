"""What a user sees of the jobs of others: listed fields only, and reasons without foreign text."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from rota.core.explain import reasons
from rota.core.explain.reasons import BacksOff, Reason
from rota.core.lifecycle.states import JobState, Purpose
from rota.core.model.job import (
    Ended,
    Job,
    JobId,
    JobSpec,
    Queued,
    Running,
    ServiceTime,
    SizeCap,
    Starting,
    Stopping,
)
from rota.daemon.access.public_view import (
    HIDDEN,
    public_details,
    public_job_view,
    public_reason,
    public_story_entry,
)
from rota.wire.jobs import AttemptView, JobDetails, JobRequest, JobView, StoryEntry, WorkerView
from tests.support.builders import slots

SECRET = "/home/ada/secret-program"
NOW = 1000.0
LISTED = """
    job.attempt job.ended_s job.epochs job.epochs_done job.finish_error job.finish_s job.gpus
    job.gpus_held job.id job.name job.nodes job.priority job.progress job.project job.remaining_s
    job.running_s job.started_s job.state job.submitted_s job.user

    request.after request.after_any request.after_failed request.array request.cpus
    request.epochs request.gpu_memory request.gpu_types request.gpus request.gpus_per_worker
    request.grace request.hold request.hours request.memory request.mode request.name
    request.node_labels request.nodes request.priority request.processes request.project
    request.retries request.time_limit

    attempts.attempt attempts.ended_s attempts.outcome attempts.started_s
    attempts.workers.cards attempts.workers.ended_s attempts.workers.exit_code
    attempts.workers.gpus attempts.workers.node attempts.workers.share_bytes
    attempts.workers.started_s attempts.workers.worker

    after after_any after_failed array_index epochs_saved failures gpu_s lost_s queued_s
    retries_left
"""
"""All that others see of a job. Add a field here only if it can hold no secret of its owner."""


def filled(kind: type[Any], **parts: object) -> Any:
    """A message with a value that tells in every field, whatever the type says."""
    values = {field.name: parts.get(field.name, SECRET) for field in fields(kind)}
    return kind(**values)


def visible(value: object, path: str = "") -> Iterator[str]:
    """The fields that hold their value."""
    if value == SECRET:
        yield path
    elif isinstance(value, list):
        for each in value:
            yield from visible(each, path)
    elif is_dataclass(value):
        for field in fields(value):
            yield from visible(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))


def job(phase: Any, **more: Any) -> Job:
    return Job(JobId("a"), JobSpec("a"), 0.0, phase, ServiceTime(0.0), **more)


def test_others_see_the_listed_fields_of_a_job() -> None:
    attempt = filled(AttemptView, workers=[filled(WorkerView)])
    view, request = filled(JobView), filled(JobRequest)
    details = filled(JobDetails, job=view, request=request, attempts=[attempt])
    shown = public_details(details, public_job_view(view, "reason"))
    assert set(visible(shown)) == set(LISTED.split())
    assert shown.request.command == [HIDDEN]
    assert shown.job.reason == "reason"


def test_others_see_no_reason_in_the_history() -> None:
    shown = public_story_entry(filled(StoryEntry))
    listed = {"actor", "after", "at_s", "attempt", "before", "cause", "job_id", "number"}
    assert set(visible(shown)) == listed


def all_reasons() -> Iterable[Reason]:
    """Each kind of reason, with foreign text in each field that can hold a sentence."""
    for kind in get_args(Reason):
        known = {"gpus": 2, "fits": 1, "n_ahead": 3, "n_running": 4, "limit": 5, "until_s": NOW}
        known |= {"wanted": "2 GPUs", "victim": "b", "node": "n1", "nodes": ("n1",)}
        known |= {"jobs": ("b",), "ended": (), "failed": ()}
        yield filled(kind, **known)


@pytest.mark.parametrize("reason", [*all_reasons()], ids=lambda each: type(each).__name__)
def test_a_reason_for_others_holds_no_foreign_text(reason: Reason) -> None:
    text = reasons.public_text(reason)
    assert text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("phase", "more", "expected"),
    [
        (Queued(0.0, not_before_s=2000.0, reason=SECRET), {}, "waits before a retry"),
        (Starting(0.0, slots("1:0"), hindrance=SECRET), {}, ""),
        (Running(0.0, slots("1:0"), (0,)), {}, ""),
        (
            Running(0.0, slots("1:0"), (0,)),
            {"cap": SizeCap(1, 2000.0, SECRET)},
            "temporarily limited to 1 GPU",
        ),
        (Stopping(0.0, slots("1:0"), (0,), Purpose.FAIL, SECRET), {}, "stops because it failed"),
        (Ended(0.0, JobState.FAILED, SECRET), {}, ""),
    ],
)
def test_others_see_a_reason_of_the_state(phase: Any, more: Any, expected: str) -> None:
    def wait_reason(job: Job) -> Reason | None:
        return BacksOff(NOW, SECRET) if isinstance(job.phase, Queued) else None

    newest: Any = SimpleNamespace(wait_reason=wait_reason)
    assert public_reason(job(phase, **more), newest, now=NOW) == expected


@pytest.mark.parametrize("purpose", Purpose)
def test_each_stop_has_a_reason_for_others(purpose: Purpose) -> None:
    phase = Stopping(0.0, slots("1:0"), (0,), purpose, SECRET)
    assert public_reason(job(phase), None, now=NOW).startswith("stops ")
