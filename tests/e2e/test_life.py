"""The life cycle of jobs on real processes."""

import pytest

from rota.client.http import AnswerError
from tests.support.daemon_process import DaemonProcess, JournalLine, wait_until

ALL = "4"
"""The number of GPUs of the daemon."""


def test_job_succeeds(daemon: DaemonProcess) -> None:
    job = daemon.submit("say start; echo some output; say end")
    assert daemon.ends(job).state == "succeeded"
    assert [line.words for line in daemon.heard(job)] == ["start", "end"]
    assert daemon.output(job) == b"some output\n"


def test_job_that_does_not_fit_waits_with_a_reason(daemon: DaemonProcess) -> None:
    first = daemon.submit("say start; await go; say end", gpus=ALL)
    daemon.says(first, "start")
    second = daemon.submit("say start; say end", gpus="1")
    wait_until(lambda: "GPU" in daemon.client.show(second).job.reason, "a reason")
    assert daemon.state_of(second) == "queued"
    daemon.allow("go")
    assert daemon.ends(second).state == "succeeded"
    assert daemon.heard() == [
        JournalLine(first, 1, "start"),
        JournalLine(first, 1, "end"),
        JournalLine(second, 1, "start"),
        JournalLine(second, 1, "end"),
    ]


def test_job_of_higher_priority_preempts_and_the_other_one_resumes(daemon: DaemonProcess) -> None:
    script = 'trap "say term; exit 0" TERM; say "start ${ROTA_RESTARTED:-0}"; await go; say end'
    low = daemon.submit(script, gpus=ALL)
    daemon.says(low, "start 0")
    high = daemon.submit("say start; await high; say end", gpus=ALL, priority=5)
    daemon.says(high, "start")
    assert daemon.state_of(low) == "queued"
    daemon.allow("high")
    daemon.says(low, "start 1", attempt=2)
    daemon.allow("go")
    assert daemon.ends(low).state == "succeeded"
    assert daemon.heard() == [
        JournalLine(low, 1, "start 0"),
        JournalLine(low, 1, "term"),
        JournalLine(high, 1, "start"),
        JournalLine(high, 1, "end"),
        JournalLine(low, 2, "start 1"),
        JournalLine(low, 2, "end"),
    ]


def test_running_job_can_be_cancelled(daemon: DaemonProcess) -> None:
    job = daemon.submit('trap "say term; exit 0" TERM; say start; await never')
    daemon.says(job, "start")
    daemon.client.cancel(job)
    assert daemon.ends(job).state == "cancelled"
    assert [line.words for line in daemon.heard(job)] == ["start", "term"]
    assert daemon.processes(job) == {}


def test_queued_job_can_be_cancelled(daemon: DaemonProcess) -> None:
    job = daemon.submit("say start", hold=True)
    assert daemon.client.cancel(job).state == "cancelled"
    assert daemon.heard(job) == []


def test_job_is_stopped_at_its_time_limit(daemon: DaemonProcess) -> None:
    job = daemon.submit("say start; await never", time_limit="1s")
    ended = daemon.ends(job)
    assert ended.state == "failed"
    assert ended.reason == "reached its time limit of 1 s"


def test_crashes_and_chosen_exit_codes_are_retried(daemon: DaemonProcess) -> None:
    crash = daemon.submit('say start; [ "$ROTA_ATTEMPT" = 2 ] || kill -9 $$; say end', retries=2)
    chosen = daemon.submit("say start; exit 3", retries=1, retry_on=[3])
    other = daemon.submit("say start; exit 4", retries=1, retry_on=[3])
    assert daemon.ends(crash).state == "succeeded"
    assert daemon.heard(crash) == [
        JournalLine(crash, 1, "start"),
        JournalLine(crash, 2, "start"),
        JournalLine(crash, 2, "end"),
    ]
    first, second = daemon.client.show(crash).attempts
    assert [worker.exit_code for worker in first.workers + second.workers] == [137, 0]
    assert daemon.ends(chosen).reason.endswith("no retries left")
    assert daemon.heard(chosen) == [
        JournalLine(chosen, 1, "start"),
        JournalLine(chosen, 2, "start"),
    ]
    assert daemon.ends(other).reason.startswith("exit code 4")
    assert len(daemon.heard(other)) == 1


def test_crash_without_retries_fails_the_job(daemon: DaemonProcess) -> None:
    job = daemon.submit("say start; kill -9 $$")
    assert daemon.ends(job).state == "failed"
    assert len(daemon.heard(job)) == 1


def test_array_has_one_job_per_index(daemon: DaemonProcess) -> None:
    jobs = daemon.client.submit_many([daemon.request('say "$ROTA_ARRAY_INDEX"', array="1,3-5")])
    assert [daemon.ends(job).state for job in jobs] == ["succeeded"] * 4
    assert [daemon.heard(job)[0].words for job in jobs] == ["1", "3", "4", "5"]


def test_job_waits_for_its_dependency(daemon: DaemonProcess) -> None:
    first = daemon.submit("say start; await go; say end")
    second = daemon.submit("say start", after=[first])
    daemon.says(first, "start")
    assert daemon.state_of(second) == "queued"
    daemon.allow("go")
    assert daemon.ends(second).state == "succeeded"
    assert [line.job_id for line in daemon.heard()] == [first, first, second]


def test_job_with_a_failed_dependency_ends_with_the_reason(daemon: DaemonProcess) -> None:
    first = daemon.submit("await go; exit 1")
    second = daemon.submit("say start", after=[first])
    third = daemon.submit("say start", after=[second])
    daemon.allow("go")
    assert daemon.ends(second).reason == f"dependency {first} failed"
    assert daemon.ends(third).reason == f"dependency {second} failed"
    with pytest.raises(AnswerError, match="did not succeed: it has failed"):
        daemon.submit("say start", after=[first])
    assert daemon.heard() == []


def test_running_job_can_be_held_and_released(daemon: DaemonProcess) -> None:
    job = daemon.submit('say "start ${ROTA_RESTARTED:-0}"; await go', hold=True)
    assert daemon.state_of(job) == "held"
    daemon.client.release(job)
    daemon.says(job, "start 0")
    daemon.client.hold(job)
    daemon.reaches(job, "held", attempt=1)
    assert daemon.processes(job) == {}
    daemon.client.release(job)
    daemon.says(job, "start 1", attempt=2)
    daemon.allow("go")
    assert daemon.ends(job).state == "succeeded"
