"""Many concurrent users, interrupted clients, and a second daemon on the same state."""

import os
import pwd
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rota.client import Client
from rota.wire.jobs import JobRequest
from tests.support.daemon_process import DaemonProcess

N_USERS = 20
N_JOBS = 5


def users() -> list[str]:
    """User names. A daemon of root needs accounts of the machine; any other accepts any name."""
    if os.geteuid() != 0:
        return [f"user-{number}" for number in range(N_USERS)]
    return [each.pw_name for each in pwd.getpwall() if each.pw_uid != 0][:N_USERS]


Deed = Callable[[Client], list[str]]


def at_once(daemon: DaemonProcess, deed: Deed, *, tokens: list[str]) -> list[list[str]]:
    """Run the calls at the same time, each with its own connection."""
    gate = threading.Barrier(len(tokens))

    def after_all(token: str) -> list[str]:
        with Client(daemon.door, token=token) as client:
            gate.wait()
            return deed(client)

    with ThreadPoolExecutor(len(tokens)) as pool:
        return list(pool.map(after_all, tokens))


def test_jobs_of_each_user_keep_their_order(daemon: DaemonProcess) -> None:
    names = users()
    tokens = [daemon.client.create_token(user=name).secret for name in names]
    request = JobRequest(["true"], workdir="/", gpus="1")

    def submit_some(client: Client) -> list[str]:
        return [client.submit(request) for _ in range(N_JOBS)]

    made = dict(zip(names, at_once(daemon, submit_some, tokens=tokens), strict=True))
    assert len({job for jobs in made.values() for job in jobs}) == len(names) * N_JOBS
    for name, jobs in made.items():
        listed = [job.id for job in daemon.client.jobs(user=name).jobs]
        assert listed == jobs[::-1]
        assert [daemon.ends(job).state for job in jobs] == ["succeeded"] * N_JOBS
        starts = [each.number for job in jobs for each in daemon.starts(job)]
        assert starts == sorted(starts)


def test_repeated_submit_creates_one_job(daemon: DaemonProcess) -> None:
    request = daemon.request("say start")
    first = daemon.client.submit(request, key="again")
    assert daemon.client.submit(request, key="again") == first
    daemon.ends(first)
    assert daemon.client.submit(request, key="again") == first
    assert daemon.client.submit(request, key="another") != first


def test_concurrent_equal_submits_create_one_job(daemon: DaemonProcess) -> None:
    request = daemon.request("say start", array="3")

    def submit(client: Client) -> list[str]:
        return client.submit_many([request], key="at once")

    answers = at_once(daemon, submit, tokens=[""] * 10)
    assert len(answers[0]) == 3
    assert answers == [answers[0]] * 10
    assert [daemon.ends(job).state for job in answers[0]] == ["succeeded"] * 3
    assert sorted(line.job_id for line in daemon.heard()) == sorted(answers[0])


def test_second_daemon_on_the_same_folder_exits(daemon: DaemonProcess) -> None:
    for flags in ([], ["--detach"]):
        second = daemon.rota("up", "--virtual-gpus", "1x16GiB", *flags)
        assert second.returncode == 1
        assert second.stdout == ""
        (line,) = second.stderr.splitlines()
        assert (
            f"a daemon (process {daemon.client.status().pid}) already uses {daemon.state}" in line
        )
    assert daemon.client.status().gpus == 4
