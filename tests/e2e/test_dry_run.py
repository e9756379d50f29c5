"""`rota submit --dry-run`: the plan of a job that is not submitted."""

from __future__ import annotations

import json
from typing import Any

from tests.support.daemon_process import DaemonProcess, temporary_daemon


def plan(daemon: DaemonProcess, *flags: str) -> dict[str, Any]:
    done = daemon.rota("submit", "--dry-run", "--json", *flags, "--", "true")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_plan_of_a_job(daemon: DaemonProcess) -> None:
    known = {each.id for each in daemon.client.jobs().jobs}
    [fits] = plan(daemon, "--gpus", "2", "--hours", "1")["plans"]
    assert (fits["starts_now"], fits["gpus"], fits["reason"]) == (True, 2, "")
    assert [each["gpus"] for each in fits["slots"]] == [[0, 1]]
    assert fits["finish_s"] - fits["start_s"] > 0

    running = daemon.submit("await never", gpus="4", hours=1)
    daemon.reaches(running, "running")
    waiting = daemon.submit("true", gpus="4", hours=1, name="second")
    found = plan(daemon, "--gpus", "1", "--hours", "1", "--array", "0-9", "--name", "sweep")
    [waits] = found["plans"]
    assert (found["count"], waits["count"], waits["starts_now"]) == (10, 10, False)
    assert waits["reason"] == "waits for 1 GPU: 1 running, 1 ahead in the queue"
    assert ([each["id"] for each in waits["ahead"]], waits["ahead_count"]) == ([waiting], 1)
    assert waits["job"]["submitted_s"] < waits["start_s"] < waits["finish_s"]

    flags = ("--dry-run", "--gpus", "4", "--name", "mine")
    text = daemon.rota("submit", *flags, "--", "true").stdout.splitlines()
    assert text[0] == "job      mine, 4 GPUs; accepted, not submitted"
    assert text[1].startswith("start    ~")
    assert text[2] == "reason   waits for 4 GPUs on 1 node: 1 running, 1 ahead in the queue"
    assert text[-1].startswith(f"ahead    1 job: {waiting} second (")
    assert 3 <= len(text) <= 8

    refused = daemon.rota("submit", "--dry-run", "--gpus", "5", "--", "true")
    assert refused.returncode == 2
    assert "requests 5 GPUs, at most 4 fit" in refused.stderr
    assert {each.id for each in daemon.client.jobs().jobs} == known | {running, waiting}


def test_plan_of_a_job_that_would_preempt() -> None:
    with temporary_daemon(settings={"ROTA_MIN_RUNTIME": "0s"}) as daemon:
        daemon.up()
        low = daemon.submit("await never", gpus="4", name="low", priority=-5)
        daemon.reaches(low, "running")
        [found] = plan(daemon, "--gpus", "1")["plans"]
        assert (found["starts_now"], found["gpus"]) == (True, 1)
        [change] = found["changes"]
        assert (change["id"], change["name"], change["change"]) == (low, "low", "preempted")
        assert (change["gpus_before"], change["gpus_after"]) == (4, 0)
        text = daemon.rota("submit", "--dry-run", "--gpus", "1", "--", "true").stdout
        assert f"changes  1 job: {low} low (" in text
        assert [each.attempt for each in daemon.client.show(low).attempts] == [1]
        assert daemon.client.show(low).job.state == "running"
