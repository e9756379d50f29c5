"""The daemon is taken down on purpose, with and without its jobs."""

from tests.e2e.house import House, Line, wait_until

PATIENT = 'trap "say term; exit 0" TERM; say "start ${ROTA_RESTARTED:-0}"; await go; say end'


def test_jobs_run_on_while_the_daemon_is_down(own_house: House) -> None:
    house = own_house
    house.up()
    first = house.submit(PATIENT)
    second = house.submit("say start")
    house.says(first, "start 0")
    house.down()
    house.up()
    assert house.state_of(first) == "running"
    house.down()
    house.allow("go")
    house.says(first, "end")
    wait_until(lambda: not house.processes(first), "the job to end by itself")
    house.up()
    assert house.ends(first).state == "succeeded"
    assert house.ends(second).state == "succeeded"
    assert house.heard() == [
        Line(first, 1, "start 0"),
        Line(first, 1, "end"),
        Line(second, 1, "start"),
    ]


def test_jobs_go_back_to_the_queue(own_house: House) -> None:
    house = own_house
    house.up()
    running = house.submit(PATIENT)
    waiting = house.submit("say start")
    held = house.submit("say start", hold=True)
    house.says(running, "start 0")
    house.down("--stop-jobs")
    assert house.heard() == [Line(running, 1, "start 0"), Line(running, 1, "term")]
    assert house.processes(running) == {}
    house.up()
    house.says(running, "start 1", attempt=2)
    house.allow("go")
    assert house.ends(waiting).state == "succeeded"
    assert house.state_of(held) == "held"


def test_jobs_go_back_to_the_queue_whatever_else_is_planned(own_house: House) -> None:
    """One gives way to another, and a third is on its way to be held, when all are to stop."""
    house = own_house
    house.up()
    stubborn = 'trap "say term; await go; exit 0" TERM; say start; await go'
    low = house.submit(stubborn, gpus="0.5")
    held = house.submit(stubborn, gpus="0.5")
    house.says(low, "start")
    house.says(held, "start")
    house.client.hold(held)
    high = house.submit("say start; await never", gpus="1", priority=5)
    house.says(low, "term")
    house.says(held, "term")
    house.client.stop(stop_jobs=True)
    house.allow("go")
    assert house.has_ended()
    house.up()
    house.says_like(high, "start", attempt=len(house.client.show(high).attempts) or 1)
    assert house.state_of(held) == "held"
    assert house.state_of(low) == "queued"
