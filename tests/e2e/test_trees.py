"""Processes that do not want to be found: all of them end before their GPU is given on.

Every process of the first job keeps a lock. The second job, which waits for the same GPU, looks
whether the lock is free and whether anybody carries the first one's mark.
"""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from rota.engines.local import files
from rota.engines.local.order import Fence
from tests.e2e.house import House, Line, a_house, wait_until

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
"""Each is gone as soon as it was seen, and another is in its place."""


@pytest.fixture(scope="module")
def shared() -> Generator[House]:
    with a_house(gpus="1x16GiB") as house:
        house.up()
        yield house


def require_clean(house: House, following: str) -> None:
    assert house.ends(following).state == "succeeded"
    assert house.heard(following) == [Line(following, 1, "looked")]


def test_an_agent_is_killed_while_its_workers_have_sessions_of_their_own(house: House) -> None:
    job = house.submit(AGENT, grace="1s")
    following = house.submit(NEXT)
    agent = house.says_like(job, "agent ")
    os.kill(int(agent.words.split()[1]), signal.SIGKILL)
    require_clean(house, following)
    assert house.ends(job).state == "failed"


def test_a_job_becomes_a_daemon(house: House) -> None:
    job = house.submit(DAEMON, grace="1s")
    following = house.submit(NEXT)
    require_clean(house, following)
    assert house.ends(job).state == "succeeded"
    assert not Path(f"/proc/{(house.place / 'daemon').read_text().strip()}").exists()


@pytest.mark.parametrize("script", [AGENT, FORGETFUL])
def test_a_keeper_is_killed(house: House, script: str) -> None:
    """The tree goes, and the job comes back; it is cancelled so that the next one gets the GPU."""
    if script is FORGETFUL and not has_groups(house):
        pytest.skip("without control groups, who hides the mark is not found")
    job = house.submit(script, grace="1s")
    house.says_like(job, "")
    os.kill(house.keeper(job), signal.SIGKILL)
    house.says_like(job, "", attempt=2)
    following = house.submit(NEXT)
    house.client.cancel(job)
    require_clean(house, following)


def test_a_bomb_goes_off_within_its_limit(house: House) -> None:
    job = house.submit(BOMB, grace="1s")
    following = house.submit(NEXT)
    house.says(job, "start")
    record = files.read_json(f"{house.folders.worker(Fence(job, 1, 0))}/{files.KEEPER}")
    folder = record["cgroups"].get("pids") if record else None
    if folder is None:
        pytest.skip("nothing would contain the bomb")
    Path(folder, "pids.max").write_text("200")
    house.allow("go")
    wait_until(lambda: has_gone_off(Path(folder)), "the bomb to reach its limit")
    house.client.cancel(job)
    require_clean(house, following)


def test_processes_that_are_gone_as_soon_as_they_are_seen(house: House) -> None:
    job = house.submit(MARKED + RUNNERS, grace="1s")
    following = house.submit(NEXT)
    house.says(job, "start")
    house.client.cancel(job)
    require_clean(house, following)


def has_gone_off(group: Path) -> bool:
    """The kernel has refused a process."""
    return (group / "pids.events").read_text() != "max 0\n"


def has_groups(house: House) -> bool:
    job = house.submit("true")
    house.ends(job)
    order = house.folders.order(Fence(job, 1, 0))
    return order is not None and "kill" in order.cgroups
