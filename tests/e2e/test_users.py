"""Many people at once, impatient ones, and somebody who starts a second daemon."""

import os
import pwd
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rota.client import Client
from rota.wire.jobs import JobRequest
from tests.e2e.house import House

N_USERS = 20
N_JOBS = 5


def users() -> list[str]:
    """Root's daemon runs jobs as accounts of the machine; anybody else's takes any name."""
    if os.geteuid() != 0:
        return [f"user-{number}" for number in range(N_USERS)]
    return [each.pw_name for each in pwd.getpwall() if each.pw_uid != 0][:N_USERS]


Deed = Callable[[Client], list[str]]


def at_once(house: House, deed: Deed, *, tokens: list[str]) -> list[list[str]]:
    """Each with a connection of its own, and all of them begin together."""
    gate = threading.Barrier(len(tokens))

    def after_all(token: str) -> list[str]:
        with Client(house.door, token=token) as client:
            gate.wait()
            return deed(client)

    with ThreadPoolExecutor(len(tokens)) as pool:
        return list(pool.map(after_all, tokens))


def test_everybodys_jobs_keep_their_order(house: House) -> None:
    names = users()
    tokens = [house.client.create_token(user=name).secret for name in names]
    request = JobRequest(["true"], workdir="/", gpus="1")

    def submit_some(client: Client) -> list[str]:
        return [client.submit(request) for _ in range(N_JOBS)]

    made = dict(zip(names, at_once(house, submit_some, tokens=tokens), strict=True))
    assert len({job for jobs in made.values() for job in jobs}) == len(names) * N_JOBS
    for name, jobs in made.items():
        listed = [job.id for job in house.client.jobs(user=name).jobs]
        assert listed == jobs[::-1]
        assert [house.ends(job).state for job in jobs] == ["succeeded"] * N_JOBS
        starts = [each.number for job in jobs for each in house.starts(job)]
        assert starts == sorted(starts)


def test_a_submit_that_is_sent_again_is_one_job(house: House) -> None:
    request = house.request("say start")
    first = house.client.submit(request, key="again")
    assert house.client.submit(request, key="again") == first
    house.ends(first)
    assert house.client.submit(request, key="again") == first
    assert house.client.submit(request, key="another") != first


def test_a_submit_that_is_sent_many_times_at_once_is_one_job(house: House) -> None:
    request = house.request("say start", array="3")

    def submit(client: Client) -> list[str]:
        return client.submit_many([request], key="at once")

    answers = at_once(house, submit, tokens=[""] * 10)
    assert len(answers[0]) == 3
    assert answers == [answers[0]] * 10
    assert [house.ends(job).state for job in answers[0]] == ["succeeded"] * 3
    assert sorted(line.job_id for line in house.heard()) == sorted(answers[0])


def test_a_second_daemon_on_the_same_folder_refuses(house: House) -> None:
    for flags in ([], ["--detach"]):
        second = house.rota("up", "--virtual-gpus", "1x16GiB", *flags)
        assert second.returncode == 1
        assert second.stdout == ""
        (line,) = second.stderr.splitlines()
        assert f"a daemon (process {house.client.status().pid}) already uses {house.state}" in line
    assert house.client.status().gpus == 4
