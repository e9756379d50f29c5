"""`rota down`, with and without stopping the jobs."""

from tests.support.daemon_process import DaemonProcess, JournalLine, wait_until

PATIENT = 'trap "say term; exit 0" TERM; say "start ${ROTA_RESTARTED:-0}"; await go; say end'


def test_jobs_continue_while_the_daemon_is_down(own_daemon: DaemonProcess) -> None:
    daemon = own_daemon
    daemon.up()
    first = daemon.submit(PATIENT)
    second = daemon.submit("say start")
    daemon.says(first, "start 0")
    daemon.down()
    daemon.up()
    assert daemon.state_of(first) == "running"
    daemon.down()
    daemon.allow("go")
    daemon.says(first, "end")
    wait_until(lambda: not daemon.processes(first), "the job to end by itself")
    daemon.up()
    assert daemon.ends(first).state == "succeeded"
    assert daemon.ends(second).state == "succeeded"
    assert daemon.heard() == [
        JournalLine(first, 1, "start 0"),
        JournalLine(first, 1, "end"),
        JournalLine(second, 1, "start"),
    ]


def test_down_with_stop_jobs_requeues_jobs(own_daemon: DaemonProcess) -> None:
    daemon = own_daemon
    daemon.up()
    running = daemon.submit(PATIENT)
    waiting = daemon.submit("say start")
    held = daemon.submit("say start", hold=True)
    daemon.says(running, "start 0")
    daemon.down("--stop-jobs")
    assert daemon.heard() == [JournalLine(running, 1, "start 0"), JournalLine(running, 1, "term")]
    assert daemon.processes(running) == {}
    daemon.up()
    daemon.says(running, "start 1", attempt=2)
    reasons = {each.reason for each in daemon.client.story(running)}
    assert any(each.startswith("back in the queue: the daemon is stopped by") for each in reasons)
    daemon.allow("go")
    assert daemon.ends(waiting).state == "succeeded"
    assert daemon.state_of(held) == "held"


def test_down_requeues_jobs_that_are_being_preempted_or_held(own_daemon: DaemonProcess) -> None:
    """When the daemon stops, one job is being preempted and another one is being held."""
    daemon = own_daemon
    daemon.up()
    stubborn = 'trap "say term; await go; exit 0" TERM; say start; await go'
    low = daemon.submit(stubborn, gpus="0.5")
    held = daemon.submit(stubborn, gpus="0.5")
    daemon.says(low, "start")
    daemon.says(held, "start")
    daemon.client.hold(held)
    high = daemon.submit("say start; await never", gpus="1", priority=5)
    daemon.says(low, "term")
    daemon.says(held, "term")
    daemon.client.stop(stop_jobs=True)
    daemon.allow("go")
    assert daemon.has_ended()
    daemon.up()
    # The job may have started before the stop: then this is its second attempt.
    daemon.reaches(high, "running")
    daemon.says_like(high, "start", attempt=len(daemon.client.show(high).attempts))
    assert daemon.state_of(held) == "held"
    assert daemon.state_of(low) == "queued"
