"""Process trees that evade a stop: all processes end before their GPU is allocated again.

Every process of the first job keeps a lock. The second job, which waits for the same GPU, looks
whether the lock is free and whether any process has the marker of the first job.
"""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from rota.engines.local.supervisor import state_files
from rota.engines.local.supervisor.records import WorkerKey
from tests.support.daemon_process import DaemonProcess, JournalLine, temporary_daemon, wait_until

MARKED = 'exec 9> "$HERE/lock"; flock -n 9; export MARK="$HERE"; '
NEXT = """
exec 9> "$HERE/lock"
flock -n 9 || say the lock is held
for each in /proc/[0-9]*; do
    grep -qsz "^MARK=$HERE$" "$each/environ" && say "$(tr '\\0' ' ' < "$each/cmdline") lives"
done
say looked
"""
AGENT = (
    MARKED
    + """
for rank in 0 1 2; do
    setsid sh -c 'trap "" TERM; until false; do sleep 1; done' &
done
say "agent $$"
wait
"""
)
DAEMON = (
    MARKED
    + """
( setsid sh -c '( trap "" TERM; echo $$ > "$HERE/daemon"; until false; do sleep 1; done & )' & )
until [ -s "$HERE/daemon" ]; do sleep 0.02; done
say away
"""
)
FORGETFUL = (
    MARKED
    + 'setsid env -i sh -c "trap \\"\\" TERM; until false; do sleep 1; done" & say start; wait'
)
BOMB = (
    MARKED
    + "trap '' TERM; bomb() { bomb | bomb & }; say start; await go; (bomb; bomb) & exec sleep 1000"
)
RUNNERS = """
run() { trap '' TERM; ( run ) & exit 0; }
for each in 0 1 2 3 4 5 6 7; do ( run ) & done
say start
await never
"""
"""Each process forks its successor and exits at once."""


@pytest.fixture(scope="module")
def shared() -> Generator[DaemonProcess]:
    with temporary_daemon(gpus="1x16GiB") as daemon:
        daemon.up()
        yield daemon


def require_clean(daemon: DaemonProcess, following: str) -> None:
    assert daemon.ends(following).state == "succeeded"
    assert daemon.heard(following) == [JournalLine(following, 1, "looked")]


def test_workers_in_other_sessions_end_with_their_killed_agent(
    daemon: DaemonProcess,
) -> None:
    job = daemon.submit(AGENT, grace="1s")
    following = daemon.submit(NEXT)
    agent = daemon.says_like(job, "agent ")
    os.kill(int(agent.words.split()[1]), signal.SIGKILL)
    require_clean(daemon, following)
    assert daemon.ends(job).state == "failed"


def test_job_that_daemonizes_is_stopped(daemon: DaemonProcess) -> None:
    job = daemon.submit(DAEMON, grace="1s")
    following = daemon.submit(NEXT)
    require_clean(daemon, following)
    assert daemon.ends(job).state == "succeeded"
    assert not Path(f"/proc/{(daemon.place / 'daemon').read_text().strip()}").exists()


@pytest.mark.parametrize("script", [AGENT, FORGETFUL])
def test_process_tree_of_a_killed_supervisor_is_ended(daemon: DaemonProcess, script: str) -> None:
    """The job is retried after the end of its tree, and cancelled to free the GPU."""
    if script is FORGETFUL and not has_groups(daemon):
        pytest.skip("without control groups, who hides the mark is not found")
    job = daemon.submit(script, grace="1s")
    daemon.says_like(job, "")
    os.kill(daemon.keeper(job), signal.SIGKILL)
    daemon.says_like(job, "", attempt=2)
    following = daemon.submit(NEXT)
    daemon.client.cancel(job)
    require_clean(daemon, following)


def test_fork_bomb_stays_within_its_limit(daemon: DaemonProcess) -> None:
    job = daemon.submit(BOMB, grace="1s")
    following = daemon.submit(NEXT)
    daemon.says(job, "start")
    record = state_files.read_json(
        f"{daemon.folders.worker(WorkerKey(job, 1, 0))}/{state_files.SUPERVISOR_FILE}"
    )
    folder = record["cgroups"].get("pids") if record else None
    if folder is None:
        pytest.skip("nothing would contain the bomb")
    Path(folder, "pids.max").write_text("200")
    daemon.allow("go")
    wait_until(lambda: has_gone_off(Path(folder)), "the bomb to reach its limit")
    daemon.client.cancel(job)
    require_clean(daemon, following)


def test_short_lived_processes_are_stopped(daemon: DaemonProcess) -> None:
    job = daemon.submit(MARKED + RUNNERS, grace="1s")
    following = daemon.submit(NEXT)
    daemon.says(job, "start")
    daemon.client.cancel(job)
    require_clean(daemon, following)


def has_gone_off(group: Path) -> bool:
    """Whether the kernel has refused to create a process."""
    return (group / "pids.events").read_text() != "max 0\n"


def has_groups(daemon: DaemonProcess) -> bool:
    job = daemon.submit("true")
    daemon.ends(job)
    spec = daemon.folders.spec(WorkerKey(job, 1, 0))
    return spec is not None and "kill" in spec.cgroups
