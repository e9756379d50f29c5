"""Limits on one worker, by control group where this machine lets us make them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.engines.base import Account, Limits, Program
from rota.engines.local import hierarchies
from rota.engines.local.hierarchies import Hierarchies
from tests.integration.engine.box import Box, on_a_box, sh

MIB = 1024**2
NOBODY = 65534
HOG = ("python3", "-c", "x = bytearray(400 << 20); print(len(x))")


@pytest.fixture
def here(tmp_path: Path) -> Hierarchies:
    found = hierarchies.find(f"rota-probe-{tmp_path.stat().st_ino}")
    hierarchies.remove(found)
    return found


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchies, "find", lambda *_: hierarchies.NONE)


def need(here: Hierarchies, controller: str) -> None:
    if controller not in here.limits:
        pytest.skip(f"no {controller} control group may be made here")


@on_a_box
async def test_too_much_memory_is_named(box: Box, here: Hierarchies) -> None:
    need(here, "memory")
    ending = await box.run("job", Program(HOG, limits=Limits(memory_bytes=100 * MIB)))
    assert ending.code == 137
    assert ending.reason == "out of host memory: the limit is 100 MiB"
    assert box.keeper_notes("job") == []


@on_a_box
async def test_cpus_are_bounded(box: Box, here: Hierarchies) -> None:
    need(here, "cpu")
    await box.run("job", sh("grep -E ':cpu:|^0::' /proc/self/cgroup", limits=Limits(cpus=1.5)))
    order = box.folders.order(box.folders.fences("job", 1)[0])
    assert order is not None
    assert "job~1~0" in (await box.output("job")).decode()
    assert not os.access(order.cgroups["cpu"], os.F_OK), "the group is removed with its worker"


@pytest.mark.usefixtures("no_groups")
@on_a_box
async def test_without_groups_memory_is_bounded_by_rlimit(box: Box) -> None:
    ending = await box.run("job", Program(HOG, limits=Limits(memory_bytes=100 * MIB)))
    assert ending.code == 1
    assert b"MemoryError" in await box.output("job")


@pytest.mark.skipif(os.getuid() != 0, reason="root is needed to become nobody")
@pytest.mark.usefixtures("no_groups")
@on_a_box
async def test_without_groups_a_fork_bomb_is_ended_by_walking(box: Box) -> None:
    account = Account("nobody", uid=NOBODY, gid=NOBODY)
    bomb = "bomb() { bomb | bomb & }; trap '' TERM; bomb 2>/dev/null; echo ready; sleep 1000"
    program = sh(bomb, limits=Limits(pids=60), account=account)
    await box.run_until_it_says("job", "ready", program)
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


@pytest.mark.usefixtures("no_groups")
@on_a_box
async def test_without_groups_a_lost_tree_is_found_by_its_marker(box: Box) -> None:
    script = "setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' & echo ready; wait"
    await box.run_until_it_says("job", "ready", sh(script))
    os.kill(box.keeper_pid("job"), 9)
    assert await box.end_of("job") == -1
    assert not box.processes("job")


@pytest.fixture
def only_freezer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As on a machine that has control groups of version 1 only."""
    base = Path("/sys/fs/cgroup/freezer") / hierarchies.name_for(tmp_path)
    try:
        base.mkdir()
    except OSError:
        pytest.skip("no freezer control group may be made here")
    monkeypatch.setattr(hierarchies, "find", lambda *_: Hierarchies({"freezer": str(base)}, {}))
    yield
    assert not base.exists(), "the engine removes its group when it closes"


@pytest.mark.usefixtures("only_freezer")
@on_a_box
async def test_a_group_of_version_1_is_frozen_and_killed(box: Box) -> None:
    hop = "trap '' TERM; echo ready; hop() { (hop) & exit 0; }; (hop) & exec sleep 1000"
    await box.run_until_it_says("job", "ready", sh(hop))
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


def test_version_2_is_handed_down(tmp_path: Path) -> None:
    """A folder stands in for the kernel: what would be written, and where."""
    own = tmp_path / "cgroup" / "service"
    base = own / "rota-1"
    base.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/service\n")
    mount = f"30 23 0:26 / {tmp_path}/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    (proc / "mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/root rw\n{mount}")
    found = hierarchies.find("rota-1", proc=proc)
    assert found == Hierarchies(
        ending={"kill": str(base)},
        limits=dict.fromkeys(("cpu", "memory", "pids"), str(base)),
    )
    assert (own / "cgroup.subtree_control").read_text() == "+pids"
    folders = found.folders("w", wanted=frozenset({"memory"}))
    assert folders == {"kill": f"{base}/w", "memory": f"{base}/w"}
