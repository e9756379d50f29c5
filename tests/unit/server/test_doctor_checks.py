"""The checks of `rota doctor`: what each says about a machine."""

from dataclasses import replace
from typing import Any

import pytest

from rota.engines.interface import GpuReading
from rota.server.doctor_checks import (
    GIB,
    MIB,
    CheckState,
    ContainerProbe,
    DaemonProbe,
    DoctorReading,
    GpuProbe,
    SettingsProbe,
    StateDirProbe,
    TimeProbe,
    has_failed,
    result_lines,
    run_checks,
)
from rota.wire.daemon import Status

GPU = GpuReading(0, "GPU-a", "A100", 80 * GIB)
UP = Status(7, "1.0", "local", "", "/s/rota.sock", 1000.0, "fifo", 1, 1, 0.0)
RUNNING = DaemonProbe("1.0", "/s/rota.sock", status=UP)
REMOTE = DaemonProbe("1.0", "https://lab", is_remote=True, status=UP)
FOLDER = StateDirProbe("/s", owner=1000, free_bytes=50 * GIB, socket="/s/rota.sock")
CLOCK = TimeProbe(2000.0, newest_s=1000.0, is_synchronized=True)
HEALTHY = DoctorReading(
    uid=1000,
    settings=SettingsProbe(),
    daemon=RUNNING,
    gpus=GpuProbe(has_hardware=True, gpus=(GPU,), mps_pipe_dir="/tmp/nvidia-mps"),
    cgroups=frozenset({"cpu", "memory", "pids", "kill"}),
    containers=ContainerProbe("podman", "5.0", has_cdi=True),
    folder=FOLDER,
    clock=CLOCK,
)
NO_DAEMON = DaemonProbe("1.0", "/s/rota.sock", is_absent=True, error="no daemon", hint="start one")


def daemon(**changes: Any) -> DaemonProbe:
    return replace(RUNNING, status=replace(UP, **changes))


def test_a_healthy_machine_passes_every_check() -> None:
    results = run_checks(HEALTHY)
    assert {each.state for each in results} == {CheckState.OK}
    assert [each.check for each in results] == [
        *("settings", "gpus", "nvml", "mps", "cgroups", "containers", "disk", "permissions"),
        *("ports", "clock", "daemon"),
    ]
    assert not has_failed(results)


FAILURES: list[tuple[str, dict[str, Any], str]] = [
    ("settings", {"settings": SettingsProbe(error="bad listen")}, "bad listen"),
    ("gpus", {"gpus": GpuProbe(gpus=(replace(GPU, problem="lost"),))}, "GPU 0: lost"),
    ("nvml", {"gpus": GpuProbe(has_hardware=True, nvml_error="no driver")}, "no driver"),
    ("mps", {"gpus": GpuProbe(gpus=(GPU,), mps_pipe_dir="/m", is_mps_dead=True)}, "/m exists"),
    ("disk", {"folder": replace(FOLDER, free_bytes=99 * MIB)}, "disk is full"),
    ("disk", {"folder": replace(FOLDER, free_inodes=0)}, "no more files"),
    ("disk", {"folder": replace(FOLDER, write_error="read-only")}, "read-only"),
    ("permissions", {"folder": replace(FOLDER, can_use_socket=False)}, "may not use the socket"),
    ("permissions", {"folder": replace(FOLDER, mode=0o770)}, "mode 770"),
    ("permissions", {"folder": replace(FOLDER, can_write=False)}, "may not write"),
    (
        "permissions",
        {"folder": StateDirProbe("/s", exists=False, can_write=False, free_bytes=50 * GIB)},
        "may not write",
    ),
    ("ports", {"daemon": daemon(address_problem="port in use")}, "port in use"),
    (
        "ports",
        {"daemon": NO_DAEMON, "settings": SettingsProbe(listen="h:1", listen_error="in use")},
        "cannot listen on h:1: in use",
    ),
    ("clock", {"clock": replace(CLOCK, newest_s=2061.0)}, "61 s behind"),
    ("daemon", {"daemon": daemon(trouble="disk full")}, "disk full"),
    ("daemon", {"daemon": daemon(scheduling="no round ends")}, "no round ends"),
    ("daemon", {"daemon": replace(NO_DAEMON, is_absent=False, error="broken")}, "broken"),
    ("daemon", {"daemon": replace(NO_DAEMON, is_remote=True)}, "no daemon"),
]

WARNINGS: list[tuple[str, dict[str, Any], str]] = [
    ("gpus", {"gpus": GpuProbe(), "daemon": NO_DAEMON}, "no usable GPU"),
    ("cgroups", {"cgroups": frozenset[str]()}, "no writable control group"),
    ("cgroups", {"cgroups": frozenset({"kill", "cpu"})}, "no limits of memory, pids"),
    ("containers", {"containers": ContainerProbe()}, "no container tool"),
    ("containers", {"containers": ContainerProbe("docker", error="denied")}, "denied"),
    ("containers", {"containers": ContainerProbe("podman", "5.0")}, "cannot use the GPUs"),
    (
        "containers",
        {"containers": ContainerProbe("podman", has_cdi=True, has_newuidmap=False)},
        "containers of root only",
    ),
    ("disk", {"folder": replace(FOLDER, free_bytes=4 * GIB)}, "almost full: 4.0 GiB"),
    ("permissions", {"folder": replace(FOLDER, owner=7, socket="")}, "belongs to user 7"),
    ("clock", {"clock": replace(CLOCK, step_s=-3.0)}, "set by -3.0 s"),
    ("clock", {"clock": replace(CLOCK, is_synchronized=False)}, "not synchronized"),
    ("daemon", {"daemon": NO_DAEMON}, "no daemon"),
    ("daemon", {"daemon": daemon(version="0.9")}, "version 0.9"),
    ("daemon", {"daemon": daemon(warnings=["GPU 1 is missing"])}, "GPU 1 is missing"),
]


@pytest.mark.parametrize(("check", "changes", "message"), FAILURES)
def test_failures_say_what_to_do(check: str, changes: dict[str, Any], message: str) -> None:
    results = run_checks(replace(HEALTHY, **changes))
    [found] = [each for each in results if each.check == check]
    assert (found.state, bool(found.hint)) == (CheckState.FAILED, True)
    assert message in found.message
    assert has_failed(results)
    assert f"-> {found.hint}" in "\n".join(result_lines(results))


@pytest.mark.parametrize(("check", "changes", "message"), WARNINGS)
def test_warnings_are_no_failures(check: str, changes: dict[str, Any], message: str) -> None:
    results = run_checks(replace(HEALTHY, **changes))
    [found] = [each for each in results if each.check == check]
    assert (found.state, bool(found.hint)) == (CheckState.WARNING, True)
    assert message in found.message
    assert not has_failed(results)


@pytest.mark.parametrize(
    "where", [{"daemon": REMOTE}, {"settings": SettingsProbe(is_kubernetes=True)}]
)
def test_this_machine_does_not_matter_if_jobs_run_elsewhere(where: dict[str, Any]) -> None:
    bare = replace(HEALTHY, gpus=GpuProbe(True, "no driver"), cgroups=frozenset(), **where)
    states = {each.check: each.state for each in run_checks(bare)}
    local = ("gpus", "nvml", "mps", "cgroups", "containers")
    assert {states[each] for each in local} == {CheckState.SKIPPED}
    assert states["daemon"] is CheckState.OK


def test_virtual_gpus_need_no_driver() -> None:
    settings = SettingsProbe(virtual_gpus="2x1GiB")
    machine = replace(HEALTHY, gpus=GpuProbe(True, "no driver"), settings=settings)
    states = {each.check: each.state for each in run_checks(machine)}
    assert (states["gpus"], states["nvml"]) == (CheckState.OK, CheckState.SKIPPED)


def test_a_user_may_use_the_daemon_of_root() -> None:
    folder = replace(FOLDER, owner=0, mode=0o711, can_write=False)
    settings = SettingsProbe(is_readable=False)
    machine = replace(HEALTHY, folder=folder, settings=settings, cgroups=frozenset())
    results = {each.check: each for each in run_checks(machine)}
    assert results["permissions"].message == "you may use the daemon of user 0"
    assert results["cgroups"].state is results["settings"].state is CheckState.SKIPPED
    assert not has_failed(list(results.values()))
