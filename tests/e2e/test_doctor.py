"""`rota doctor` on this machine, with a daemon and without one."""

import json
import socket
from typing import Any

from tests.support.daemon_process import DaemonProcess

CHECKS = [
    *("settings", "gpus", "nvml", "mps", "cgroups", "containers", "disk", "permissions"),
    *("ports", "clock", "daemon"),
]


def checks_of(daemon: DaemonProcess, *, code: int) -> dict[str, dict[str, Any]]:
    done = daemon.rota("doctor", "--json")
    assert (done.returncode, done.stderr) == (code, ""), done.stdout
    found = json.loads(done.stdout)
    assert found["ok"] is (code == 0)
    assert [each["check"] for each in found["checks"]] == CHECKS
    for each in found["checks"]:
        assert list(each) == ["check", "state", "message", "hint"]
    return {each["check"]: each for each in found["checks"]}


def test_doctor_with_a_daemon(own_daemon: DaemonProcess) -> None:
    own_daemon.up()
    files = {each.name for each in own_daemon.state.iterdir()}
    found = checks_of(own_daemon, code=0)
    assert found["gpus"]["message"] == "virtual GPUs: 1x16GiB"
    assert found["daemon"]["state"] == found["settings"]["state"] == "ok"
    assert own_daemon.client.status().version in found["daemon"]["message"]
    assert {each.name for each in own_daemon.state.iterdir()} == files
    text = own_daemon.rota("doctor").stdout
    assert "ok       gpus         virtual GPUs: 1x16GiB\n" in text


def test_doctor_without_a_daemon(own_daemon: DaemonProcess) -> None:
    found = checks_of(own_daemon, code=0)
    assert found["daemon"]["state"] == "warning"
    assert found["daemon"]["hint"] == "start one with 'rota up --detach'"
    assert list(own_daemon.state.iterdir()) == []


def test_doctor_fails_if_the_port_is_taken_or_the_folder_is_open(own_daemon: DaemonProcess) -> None:
    own_daemon.state.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as other:
        own_daemon.tell(ROTA_LISTEN=f"127.0.0.1:{other.getsockname()[1]}")
        found = checks_of(own_daemon, code=1)
    assert found["ports"]["state"] == found["permissions"]["state"] == "failed"
    assert "address already in use" in found["ports"]["message"]
    own_daemon.state.chmod(0o700)
    assert checks_of(own_daemon, code=0)["ports"]["state"] == "ok"


def test_doctor_names_an_invalid_setting(own_daemon: DaemonProcess) -> None:
    (own_daemon.state / "config.toml").write_text('listen = "nowhere"\n')
    found = checks_of(own_daemon, code=1)
    assert found["settings"]["state"] == "failed"
    assert "'nowhere' is not a valid listen address" in found["settings"]["message"]
