"""Programs that cannot run, will not end, or write without measure."""

from pathlib import Path

import pytest

from rota.wire.jobs import JobRequest
from tests.e2e.disks import can_mount, on_a_disk
from tests.e2e.house import House, a_house, wait_until

GB = 10**9
LOG_BYTES_MAX = 4 * 64 * 1024**2


def run(house: House, *command: str) -> tuple[str, str, list[int | None]]:
    job = house.client.submit(JobRequest(list(command), workdir=str(house.place)))
    ended = house.ends(job)
    attempts = house.client.show(job).attempts
    return ended.state, ended.reason, [each.workers[0].exit_code for each in attempts]


def test_a_program_that_does_not_exist(house: House) -> None:
    state, reason, codes = run(house, "no-such-program", "--flag")
    assert (state, codes) == ("failed", [127])
    assert "program 'no-such-program' was not found in PATH" in reason


def test_a_program_that_is_none(house: House) -> None:
    path = house.place / "script"
    path.write_text("#!/bin/sh\necho hello\n")
    state, reason, codes = run(house, str(path))
    assert (state, codes) == ("failed", [126])
    assert "may not be executed: permission denied" in reason
    path.chmod(0o755)
    assert run(house, str(path)) == ("succeeded", "", [0])
    path.write_text("#!/no/such/interpreter\n")
    state, reason, codes = run(house, str(path))
    assert (state, codes) == ("failed", [127])
    assert "needs an interpreter that does not exist" in reason


def test_a_folder_that_does_not_exist(house: House) -> None:
    job = house.client.submit(JobRequest(["true"], workdir="/no/such/folder"))
    ended = house.ends(job)
    assert ended.state == "failed"
    assert "working folder '/no/such/folder' cannot be entered" in ended.reason


def test_programs_that_end_at_once(house: House) -> None:
    assert run(house, "true") == ("succeeded", "", [0])
    state, reason, codes = run(house, "false")
    assert (state, codes) == ("failed", [1])
    assert "exit code 1" in reason


def test_a_program_that_forks_away(house: House) -> None:
    job = house.submit('(trap "" TERM; say child; await never) & await child; exit 0', grace="1s")
    house.says(job, "child")
    house.allow("child")
    assert house.ends(job).state == "succeeded"
    assert house.processes(job) == {}


def test_a_program_that_ignores_sigterm(house: House) -> None:
    job = house.submit(
        'trap "say ignored" TERM; say start; until false; do sleep 1; done', grace="1s"
    )
    house.says(job, "start")
    house.client.cancel(job)
    assert house.ends(job).state == "cancelled"
    house.says(job, "ignored")
    assert house.client.show(job).attempts[0].workers[0].exit_code == 137
    assert house.processes(job) == {}


def test_a_line_of_a_gigabyte(house: House) -> None:
    job = house.submit(f"head -c {GB} /dev/zero; printf done")
    assert house.ends(job).state == "succeeded"
    folder = house.folders.attempt(job, 1) / "0"
    kept = sum(path.stat().st_size for path in folder.glob("worker-0.log*"))
    assert kept < LOG_BYTES_MAX + 1024**2
    last = b""
    n_bytes = 0
    for chunk in house.client.log_bytes(job):
        n_bytes += len(chunk)
        last = (last + chunk)[-4:]
    assert last == b"done"
    assert LOG_BYTES_MAX / 2 < n_bytes <= LOG_BYTES_MAX


def test_a_disk_that_a_log_has_filled(tmp_path: Path) -> None:
    """The program goes on, without its log. Who comes next waits for room."""
    if not can_mount(tmp_path):
        pytest.skip("needs the right to mount")
    with a_house(gpus="1x16GiB", runner=on_a_disk("engine", "2m")) as house:
        house.launch()
        house.look_through_its_eyes()
        house.ready()
        loud = house.submit("yes | head -c 8000000; say end; await go")
        house.says(loud, "end")
        following = house.submit("say start; await go; say end")
        house.allow("go")
        wait_until(lambda: "no space left" in house.client.status().trouble, "the daemon to say so")
        house.folders.attempt(loud, 1).joinpath("0", "worker-0.log").unlink()
        assert house.ends(following).state == "succeeded"
        assert house.ends(loud).state == "succeeded"
        assert [line.words for line in house.heard(following)] == ["start", "end"]
