"""Random sequences of resizes, failures and stops. A failed test prints its seed."""

import os
import random
import signal
from collections.abc import Callable

import pytest

from tests.integration.live.elastic_job import EPOCHS, ElasticJob, check, finish, say

N_SEEDS = 50 if os.environ.get("ROTA_TEST_LONG") else 5
N_EVENTS = 6
MOST = 4
EVENTS = ("grow", "shrink", "move", "kill", "kill two", "end", "end two", "away")
"""`end` is by SIGTERM."""


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_training_survives_any_sequence_of_resizes_deaths_and_stops(
    start_job: Callable[..., ElasticJob], seed: int
) -> None:
    say(f"seed={seed}")
    chance = random.Random(seed)
    job = start_job(epochs=EPOCHS)
    desk = job.coordinator
    desk.want(0, 1)
    desk.wait_for_generation()
    for _ in range(N_EVENTS):
        members = list(desk.target)
        event = chance.choice(EVENTS)
        by = signal.SIGTERM if event.startswith("end") else signal.SIGKILL
        next_number = max(desk.begun) + 1
        say(f"{event} {members}")
        if event == "grow" and len(members) < MOST:
            desk.want(*members, next_number)
        elif event == "shrink" and len(members) > 1:
            members.remove(chance.choice(members))
            desk.want(*members)
        elif event == "move":
            members[chance.randrange(len(members))] = next_number
            desk.want(*members)
        elif event in ("kill", "end") and len(members) > 1:
            kill(job, [chance.choice(members)], by=by)
        elif event in ("kill two", "end two") and len(members) > 2:
            kill(job, chance.sample(members, 2), by=by)
        elif event == "away":
            is_whole = desk.is_committed()
            desk.go_away()
            if is_whole:
                job.wait_for_steps(2)
            desk.serve()
            desk.react_again()
        if chance.random() < 0.6:
            desk.wait_for_generation()
            desk.wait_for_steps(1)
    desk.wait_for_generation()
    finish(job, *desk.target)
    check(job)


def kill(job: ElasticJob, numbers: list[int], *, by: int) -> None:
    """Kill workers after they have started, unless no worker that can continue would be left."""
    desk = job.coordinator
    desk.wait_until(lambda: all(number in desk.processes for number in numbers))
    standing = [n for n in desk.target if desk.reports.get(n, {}).get("generation", -1) >= 0]
    if set(standing) - set(numbers):
        desk.kill(*(number for number in numbers if number not in desk.ends), by=by)
        desk.wait_for_ends(*numbers)
