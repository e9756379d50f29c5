"""Commands that need a real machine or daemon print JSON in the form of their schemas."""

import json

import jsonschema_rs

from tests.support.daemon_process import DaemonProcess
from tests.tidy.json_schemas import ERROR, SCHEMAS, strict


def require_schema(name: str, printed: str) -> None:
    jsonschema_rs.validate(strict(SCHEMAS[name]), json.loads(printed))


def test_a_day_of_a_daemon(own_daemon: DaemonProcess) -> None:
    up = own_daemon.rota("up", "--virtual-gpus", "1x16GiB", "--detach", "--json")
    require_schema("up", up.stdout)
    require_schema("doctor", own_daemon.rota("doctor", "--json").stdout)
    require_schema("store check", own_daemon.rota("store", "check", "--json").stdout)
    require_schema("submit", own_daemon.rota("submit", "--wait", "--json", "--", "true").stdout)
    down = own_daemon.rota("down", "--json")
    require_schema("down", down.stdout)
    assert json.loads(up.stdout)["pid"] == json.loads(down.stdout)["pid"]


def test_lines_of_a_followed_submit(daemon: DaemonProcess) -> None:
    done = daemon.rota("submit", "--follow", "--json", "--", "echo", "hi")
    lines = [json.loads(each) for each in done.stdout.splitlines()]
    for each in lines:
        jsonschema_rs.validate(strict(SCHEMAS["logs"]), each)
    assert [each["type"] for each in lines] == ["job", "log", "job"]
    assert [each["state"] for each in lines if each["type"] == "job"][1:] == ["succeeded"]


def test_the_failure_of_a_job_is_an_error_in_json(daemon: DaemonProcess) -> None:
    done = daemon.rota("submit", "--wait", "--json", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    jsonschema_rs.validate(strict(ERROR), error := json.loads(done.stderr))
    assert (error["code"], json.loads(done.stdout)["state"]) == ("failed", "failed")
