"""Limits of one worker, by control group where this machine allows it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.engines.interface import Program, UnixAccount, WorkerLimits
from rota.engines.local import cgroup_discovery
from rota.engines.local.cgroup_discovery import Hierarchies
from tests.integration.engine.box import Box, on_a_box, sh

MIB = 1024**2
NOBODY = 65534
HOG = ("python3", "-c", "x = bytearray(400 << 20); print(len(x))")


@pytest.fixture
def here(tmp_path: Path) -> Hierarchies:
    found = cgroup_discovery.find(f"rota-probe-{tmp_path.stat().st_ino}")
    cgroup_discovery.remove(found)
    return found


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_discovery, "find", lambda *_: cgroup_discovery.NONE)


def need(here: Hierarchies, controller: str) -> None:
    if controller not in here.limits:
        pytest.skip(f"no {controller} control group may be made here")


def test_usable_groups_are_known_without_a_change(here: Hierarchies) -> None:
    usable = cgroup_discovery.usable(Path("/proc/self"))
    assert usable & set(cgroup_discovery.CONTROLLERS) == set(here.limits)
    assert bool(usable & {"kill", "freezer"}) == bool(here.ending)


@on_a_box
async def test_out_of_memory_is_reported(box: Box, here: Hierarchies) -> None:
    need(here, "memory")
    ending = await box.run("job", Program(HOG, limits=WorkerLimits(memory_bytes=100 * MIB)))
    assert ending.code == 137
    assert ending.reason == "out of host memory: the limit is 100 MiB"
    assert box.supervisor_notes("job") == []


@on_a_box
async def test_cpu_limit(box: Box, here: Hierarchies) -> None:
    need(here, "cpu")
    await box.run(
        "job", sh("grep -E ':cpu:|^0::' /proc/self/cgroup", limits=WorkerLimits(cpus=1.5))
    )
    spec = box.folders.spec(box.folders.worker_keys("job", 1)[0])
    assert spec is not None
    assert "job~1~0" in (await box.output("job")).decode()
    assert not os.access(spec.cgroups["cpu"], os.F_OK), "the group is removed with its worker"


@pytest.mark.usefixtures("no_groups")
@on_a_box
async def test_without_cgroups_rlimit_bounds_memory(box: Box) -> None:
    ending = await box.run("job", Program(HOG, limits=WorkerLimits(memory_bytes=100 * MIB)))
    assert ending.code == 1
    assert b"MemoryError" in await box.output("job")


@pytest.mark.skipif(os.getuid() != 0, reason="root is needed to become nobody")
@pytest.mark.usefixtures("no_groups")
@on_a_box
async def test_without_cgroups_a_fork_bomb_is_killed_by_walking(box: Box) -> None:
    account = UnixAccount("nobody", uid=NOBODY, gid=NOBODY)
    bomb = "bomb() { bomb | bomb & }; trap '' TERM; bomb 2>/dev/null; echo ready; sleep 1000"
    program = sh(bomb, limits=WorkerLimits(pids=60), account=account)
    await box.run_until_output("job", "ready", program)
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


@pytest.mark.usefixtures("no_groups")
@on_a_box
async def test_without_cgroups_orphans_are_found_by_marker(box: Box) -> None:
    script = "setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' & echo ready; wait"
    await box.run_until_output("job", "ready", sh(script))
    os.kill(box.supervisor_pid("job"), 9)
    assert await box.end_of("job") == -1
    assert not box.processes("job")


@pytest.fixture
def only_freezer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As on a machine with control groups of version 1 only."""
    base = Path("/sys/fs/cgroup/freezer") / cgroup_discovery.name_for(tmp_path)
    try:
        base.mkdir()
    except OSError:
        pytest.skip("no freezer control group may be made here")
    monkeypatch.setattr(
        cgroup_discovery, "find", lambda *_: Hierarchies({"freezer": str(base)}, {})
    )
    yield
    assert not base.exists(), "the engine removes its group when it closes"


@pytest.mark.usefixtures("only_freezer")
@on_a_box
async def test_version_1_group_is_frozen_and_killed(box: Box) -> None:
    hop = "trap '' TERM; echo ready; hop() { (hop) & exit 0; }; (hop) & exec sleep 1000"
    await box.run_until_output("job", "ready", sh(hop))
    await box.stop("job", grace_s=0.1)
    await box.end_of("job")
    assert not box.processes("job")


def test_version_2_controllers_are_delegated(tmp_path: Path) -> None:
    """A directory replaces the kernel: the test checks the written files."""
    own = tmp_path / "cgroup" / "service"
    base = own / "rota-1"
    base.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/service\n")
    mount = f"30 23 0:26 / {tmp_path}/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    (proc / "mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/root rw\n{mount}")
    found = cgroup_discovery.find("rota-1", proc=proc)
    assert found == Hierarchies(
        ending={"kill": str(base)},
        limits=dict.fromkeys(("cpu", "memory", "pids"), str(base)),
    )
    assert (own / "cgroup.subtree_control").read_text() == "+pids"
    folders = found.folders("w", wanted=frozenset({"memory"}))
    assert folders == {"kill": f"{base}/w", "memory": f"{base}/w"}
