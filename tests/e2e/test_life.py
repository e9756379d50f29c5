"""What can become of a job, on real processes."""

import pytest

from rota.client.http import AnswerError
from tests.e2e.house import House, Line, wait_until

ALL = "4"
"""GPUs: as many as there are."""


def test_a_job_runs_to_its_end(house: House) -> None:
    job = house.submit("say start; echo some output; say end")
    assert house.ends(job).state == "succeeded"
    assert [line.words for line in house.heard(job)] == ["start", "end"]
    assert house.output(job) == b"some output\n"


def test_what_does_not_fit_waits_and_says_why(house: House) -> None:
    first = house.submit("say start; await go; say end", gpus=ALL)
    house.says(first, "start")
    second = house.submit("say start; say end", gpus="1")
    wait_until(lambda: "GPU" in house.client.show(second).job.reason, "a reason")
    assert house.state_of(second) == "queued"
    house.allow("go")
    assert house.ends(second).state == "succeeded"
    assert house.heard() == [
        Line(first, 1, "start"),
        Line(first, 1, "end"),
        Line(second, 1, "start"),
        Line(second, 1, "end"),
    ]


def test_a_higher_priority_takes_the_gpus_and_gives_them_back(house: House) -> None:
    script = 'trap "say term; exit 0" TERM; say "start ${ROTA_RESTARTED:-0}"; await go; say end'
    low = house.submit(script, gpus=ALL)
    house.says(low, "start 0")
    high = house.submit("say start; await high; say end", gpus=ALL, priority=5)
    house.says(high, "start")
    assert house.state_of(low) == "queued"
    house.allow("high")
    house.says(low, "start 1", attempt=2)
    house.allow("go")
    assert house.ends(low).state == "succeeded"
    assert house.heard() == [
        Line(low, 1, "start 0"),
        Line(low, 1, "term"),
        Line(high, 1, "start"),
        Line(high, 1, "end"),
        Line(low, 2, "start 1"),
        Line(low, 2, "end"),
    ]


def test_a_job_that_runs_is_cancelled(house: House) -> None:
    job = house.submit('trap "say term; exit 0" TERM; say start; await never')
    house.says(job, "start")
    house.client.cancel(job)
    assert house.ends(job).state == "cancelled"
    assert [line.words for line in house.heard(job)] == ["start", "term"]
    assert house.processes(job) == {}


def test_a_job_that_waits_is_cancelled(house: House) -> None:
    job = house.submit("say start", hold=True)
    assert house.client.cancel(job).state == "cancelled"
    assert house.heard(job) == []


def test_a_job_that_takes_too_long_is_ended(house: House) -> None:
    job = house.submit("say start; await never", time_limit="1s")
    ended = house.ends(job)
    assert ended.state == "failed"
    assert ended.reason == "reached its time limit of 1 s"


def test_crashes_and_chosen_exit_codes_are_retried(house: House) -> None:
    """Together, because the wait before a retry is long."""
    crash = house.submit('say start; [ "$ROTA_ATTEMPT" = 2 ] || kill -9 $$; say end', retries=2)
    chosen = house.submit("say start; exit 3", retries=1, retry_on=[3])
    other = house.submit("say start; exit 4", retries=1, retry_on=[3])
    assert house.ends(crash).state == "succeeded"
    assert house.heard(crash) == [
        Line(crash, 1, "start"),
        Line(crash, 2, "start"),
        Line(crash, 2, "end"),
    ]
    first, second = house.client.show(crash).attempts
    assert [worker.exit_code for worker in first.workers + second.workers] == [137, 0]
    assert house.ends(chosen).reason.endswith("no retries left")
    assert house.heard(chosen) == [Line(chosen, 1, "start"), Line(chosen, 2, "start")]
    assert house.ends(other).reason.startswith("exit code 4")
    assert len(house.heard(other)) == 1


def test_a_crash_without_retries_is_the_end(house: House) -> None:
    job = house.submit("say start; kill -9 $$")
    assert house.ends(job).state == "failed"
    assert len(house.heard(job)) == 1


def test_an_array_is_a_job_for_each_index(house: House) -> None:
    jobs = house.client.submit_many([house.request('say "$ROTA_ARRAY_INDEX"', array="1,3-5")])
    assert [house.ends(job).state for job in jobs] == ["succeeded"] * 4
    assert [house.heard(job)[0].words for job in jobs] == ["1", "3", "4", "5"]


def test_a_job_waits_for_another(house: House) -> None:
    first = house.submit("say start; await go; say end")
    second = house.submit("say start", after=[first])
    house.says(first, "start")
    assert house.state_of(second) == "queued"
    house.allow("go")
    assert house.ends(second).state == "succeeded"
    assert [line.job_id for line in house.heard()] == [first, first, second]


def test_a_job_does_not_wait_for_what_failed(house: House) -> None:
    first = house.submit("await go; exit 1")
    second = house.submit("say start", after=[first])
    third = house.submit("say start", after=[second])
    house.allow("go")
    assert house.ends(second).reason == f"{first}, which it waits for, has failed"
    assert house.ends(third).reason == f"{second}, which it waits for, has failed"
    with pytest.raises(AnswerError, match="has failed"):
        house.submit("say start", after=[first])
    assert house.heard() == []


def test_a_job_is_held_and_released(house: House) -> None:
    job = house.submit('say "start ${ROTA_RESTARTED:-0}"; await go', hold=True)
    assert house.state_of(job) == "held"
    house.client.release(job)
    house.says(job, "start 0")
    house.client.hold(job)
    house.reaches(job, "held", attempt=1)
    assert house.processes(job) == {}
    house.client.release(job)
    house.says(job, "start 1", attempt=2)
    house.allow("go")
    assert house.ends(job).state == "succeeded"
