"""Programs that cannot start, do not stop, or write too much output."""

from pathlib import Path

import pytest

from rota.wire.jobs import JobRequest
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.small_disks import can_mount, fill, on_a_disk

GB = 10**9
LOG_BYTES_MAX = 4 * 64 * 1024**2


def run(daemon: DaemonProcess, *command: str) -> tuple[str, str, list[int | None]]:
    job = daemon.client.submit(JobRequest(list(command), workdir=str(daemon.place)))
    ended = daemon.ends(job)
    attempts = daemon.client.show(job).attempts
    return ended.state, ended.reason, [each.workers[0].exit_code for each in attempts]


def test_job_with_a_missing_program_fails(daemon: DaemonProcess) -> None:
    state, reason, codes = run(daemon, "no-such-program", "--flag")
    assert (state, codes) == ("failed", [127])
    assert "program 'no-such-program' not found in PATH" in reason


def test_job_with_a_file_that_is_no_program_fails(daemon: DaemonProcess) -> None:
    path = daemon.place / "script"
    path.write_text("#!/bin/sh\necho hello\n")
    state, reason, codes = run(daemon, str(path))
    assert (state, codes) == ("failed", [126])
    assert "is not executable: permission denied" in reason
    path.chmod(0o755)
    assert run(daemon, str(path)) == ("succeeded", "", [0])
    path.write_text("#!/no/such/interpreter\n")
    state, reason, codes = run(daemon, str(path))
    assert (state, codes) == ("failed", [127])
    assert "needs an interpreter that does not exist" in reason


def test_job_with_a_missing_working_folder_fails(daemon: DaemonProcess) -> None:
    job = daemon.client.submit(JobRequest(["true"], workdir="/no/such/folder"))
    ended = daemon.ends(job)
    assert ended.state == "failed"
    assert "cannot enter working directory '/no/such/folder'" in ended.reason


def test_programs_that_exit_at_once_are_recorded(daemon: DaemonProcess) -> None:
    assert run(daemon, "true") == ("succeeded", "", [0])
    state, reason, codes = run(daemon, "false")
    assert (state, codes) == ("failed", [1])
    assert "exit code 1" in reason


def test_background_process_of_a_program_is_ended_with_the_job(daemon: DaemonProcess) -> None:
    job = daemon.submit('(trap "" TERM; say child; await never) & await child; exit 0', grace="1s")
    daemon.says(job, "child")
    daemon.allow("child")
    assert daemon.ends(job).state == "succeeded"
    assert daemon.processes(job) == {}


def test_program_that_ignores_sigterm_is_killed(daemon: DaemonProcess) -> None:
    job = daemon.submit(
        'trap "say ignored" TERM; say start; until false; do sleep 1; done', grace="1s"
    )
    daemon.says(job, "start")
    daemon.client.cancel(job)
    assert daemon.ends(job).state == "cancelled"
    daemon.says(job, "ignored")
    assert daemon.client.show(job).attempts[0].workers[0].exit_code == 137
    assert daemon.processes(job) == {}


def test_line_of_a_gigabyte_does_not_fill_the_disk(daemon: DaemonProcess) -> None:
    job = daemon.submit(f"head -c {GB} /dev/zero; printf done")
    assert daemon.ends(job).state == "succeeded"
    folder = daemon.folders.attempt(job, 1) / "0"
    kept = sum(path.stat().st_size for path in folder.glob("worker-0.log*"))
    assert kept < LOG_BYTES_MAX + 1024**2
    last = b""
    n_bytes = 0
    for chunk in daemon.client.log_bytes(job):
        n_bytes += len(chunk)
        last = (last + chunk)[-4:]
    assert last == b"done"
    assert LOG_BYTES_MAX / 2 < n_bytes <= LOG_BYTES_MAX


def test_program_continues_after_its_log_has_filled_the_disk(tmp_path: Path) -> None:
    """The program continues without its log. The next job waits for free space."""
    if not can_mount(tmp_path):
        pytest.skip("needs the right to mount")
    with temporary_daemon(gpus="1x16GiB", runner=on_a_disk("engine", "2m")) as daemon:
        daemon.launch()
        daemon.enter_mount_namespace()
        daemon.ready()
        loud = daemon.submit("yes | head -c 8000000; say end; await go")
        daemon.says(loud, "end")
        # A partial write is undone, so that a little space may be left.
        fill(daemon.state / "engine" / "filler")
        following = daemon.submit("say start; await go; say end")
        daemon.allow("go")
        wait_until(
            lambda: any("no space left" in each.reason for each in daemon.client.story(following)),
            "the history to say so",
        )
        assert daemon.readiness() == 200, "the store is on another disk"
        (daemon.state / "engine" / "filler").unlink()
        daemon.folders.attempt(loud, 1).joinpath("0", "worker-0.log").unlink()
        assert daemon.ends(following).state == "succeeded"
        assert daemon.ends(loud).state == "succeeded"
        assert [line.words for line in daemon.heard(following)] == ["start", "end"]
