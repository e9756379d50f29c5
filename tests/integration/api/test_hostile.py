"""Hostile values: rejected with the name of the field, without a traceback and without effect."""

import json
from typing import Any

import pytest

from tests.integration.api.daemon_process import ApiDaemon, problem_of, read_all, submit

MEGABYTE = 1024**2
HUGE = "1" + "0" * 400
TOO_HUGE = "1" + "0" * 5000
UP = "../../../../etc/passwd"

STRINGS = ["\0", "a\0b", "a\nb", "\u202egnp.exe", "\ud800", UP, "x" * 10 * MEGABYTE, "🔥", " "]
NAMED = ["name", "project", "category", "image", "snapshot", "workdir", "array", "gpus", "memory"]
NAMED += ["gpu_memory", "time_limit", "grace", "mode"]


def text(value: Any) -> str:
    """The value as JSON; `Raw` stands for text that no JSON encoder writes."""
    return json.dumps(value) if not isinstance(value, Raw) else value.json


class Raw:
    def __init__(self, json: str) -> None:
        self.json = json

    def __repr__(self) -> str:
        return self.json[:20]


def body(**fields: Any) -> str:
    inner = ", ".join(f"{json.dumps(name)}: {text(value)}" for name, value in fields.items())
    return "{" + inner + "}"


def is_refused(daemon: ApiDaemon, content: str | bytes, *, field: str) -> None:
    """Check that submit, batch and check reject the value, and that the queue is unchanged."""
    before = daemon.n_jobs()
    many = '{"jobs": [{"command": ["true"], "hold": true}, %s]}'
    for path in ("", "/batch", "/check"):
        sent = many % content if path else content
        answer = daemon.admin.post(f"/v1/jobs{path}", content=sent, headers=JSON)
        assert answer.status_code == 422, answer.text[:300]
        problem = answer.json()
        named = problem["details"]["field"].removeprefix("jobs.1.").split(".")[0]
        assert named == field, problem
        assert field in problem["message"]
        assert len(answer.content) < 2000
    assert daemon.n_jobs() == before


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("value", STRINGS, ids=range(len(STRINGS)))
def test_invalid_text_is_rejected(daemon: ApiDaemon, name: str, value: str) -> None:
    is_refused(daemon, body(command=["true"], **{name: value}), field=name)


@pytest.mark.parametrize(
    ("path", "content", "field"),
    [
        ("", {"command": ["true"], "gpsu": "0"}, "gpsu"),
        ("/batch", {"jobs": [{"command": ["true"], "gpsu": "0"}]}, "jobs.0.gpsu"),
        ("/check", {"jobs": [{"command": ["true"], "gpsu": "0"}]}, "jobs.0.gpsu"),
    ],
)
def test_unknown_fields_are_rejected(
    daemon: ApiDaemon, path: str, content: Any, field: str
) -> None:
    answer = daemon.admin.post(f"/v1/jobs{path}", json=content)
    assert answer.status_code == 422
    told = answer.json()
    assert (told["code"], told["details"]) == ("refused", {"field": field})
    assert told["hint"] == "did you mean 'gpus'?"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("command", []),
        ("command", [""]),
        ("command", ["a\0b"]),
        ("command", ["\ud800"]),
        ("command", ["x" * 10 * MEGABYTE]),
        ("command", ["x"] * 100_000),
        ("command", "rm -rf /"),
        ("command", [["x"]]),
        ("command", {"0": "x"}),
        ("command", None),
        ("env", {"LD PRELOAD": "x"}),
        ("env", {"": "x"}),
        ("env", {"A=B": "x"}),
        ("env", {"A\nB": "x"}),
        ("env", {"A": "x\0"}),
        ("env", {"A": "\udfff"}),
        ("env", {"\ud800": "x"}),
        ("env", {"A": "x" * MEGABYTE}),
        ("env", {f"A{number}": "" for number in range(100_000)}),
        ("env", {"ROTA_TOKEN": "x"}),
        ("env", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}),
        ("env", [["A", "x"]]),
        ("mounts", ["/etc:/etc"]),
        ("umask", -1),
        ("umask", 0o1000),
        ("ports", ["80:0"]),
        ("ports", ["0x50:80"]),
        ("ports", ["65536:1"]),
        ("ports", ["1:1"] * 2000),
        ("gpu_types", [""]),
        ("gpu_types", ["x" * 200]),
        ("gpu_types", ["A"] * 2000),
        ("node_labels", {"": "x"}),
        ("node_labels", {"x": "y" * 200}),
        ("node_labels", {str(number): "x" for number in range(2000)}),
        ("after", ["x"] * 2000),
        ("after", ["\0"]),
        ("after", ["\ud800"]),
        ("array", "0-999999999"),
        ("array", ",".join(["1"] * MEGABYTE)),
        ("gpus", "9" * 400),
        ("gpus", "nan"),
        ("gpus", "0." + "0" * 400 + "1"),
        ("memory", "1e400GiB"),
        ("grace", "1e400"),
        ("time_limit", "0"),
        ("retries", -1),
        ("retries", Raw(HUGE)),
        ("priority", Raw(HUGE)),
        ("priority", Raw(f"-{HUGE}")),
        ("priority", Raw("1e400")),
        ("priority", 1.5),
        ("gpus_per_worker", Raw(HUGE)),
        ("umask", Raw(HUGE)),
        ("retry_on", [Raw]),
        ("retry_on", [0]),
        ("retry_on", [1] * 2000),
        ("cpus", Raw("NaN")),
        ("cpus", Raw("Infinity")),
        ("cpus", Raw("-1")),
        ("cpus", Raw("1e400")),
        ("cpus", Raw(HUGE)),
        ("epochs", Raw("NaN")),
        ("epochs", Raw("-Infinity")),
        ("epochs", Raw(HUGE)),
        ("hours", Raw("NaN")),
        ("hours", Raw("1e308")),
        ("hours", Raw("1e-320")),
        ("hold", "perhaps"),
        ("hold", Raw("NaN")),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_values_out_of_bounds_are_rejected(daemon: ApiDaemon, field: str, value: Any) -> None:
    fields = {"command": ["true"], field: [None] if value == [Raw] else value}
    is_refused(daemon, body(**fields), field=field)


@pytest.mark.parametrize(
    "content",
    [
        b"{%s}" % b",".join(b'"%07d":1' % number for number in range(1_200_000)),
        b'{"command":[%s]}' % b",".join([b"1"] * 2_000_000),
        b'{"env":{%s}}' % b",".join(b'"E%06d":""' % number for number in range(300_000)),
    ],
    ids=["keys", "values", "variables"],
)
def test_more_keys_and_values_than_any_request_has_are_rejected(
    daemon: ApiDaemon, content: bytes
) -> None:
    for path in ("", "/batch", "/check"):
        answer = daemon.admin.post(f"/v1/jobs{path}", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"command": [1] * 30_000}, "command"),
        ({"command": ["x"], "env": {f"E{number}": "" for number in range(30_000)}}, "env"),
    ],
)
def test_long_lists_are_rejected_before_their_entries(
    daemon: ApiDaemon, content: dict[str, Any], field: str
) -> None:
    is_refused(daemon, json.dumps(content), field=field)


def test_the_first_invalid_job_of_a_large_batch_is_named(daemon: ApiDaemon) -> None:
    jobs = [{"command": ["true"], "hold": True}] * 5000
    wrong = [*jobs, {"command": ["true"], "retries": "many"}, {"command": 5}]
    answer = daemon.admin.post("/v1/jobs/batch", json={"jobs": wrong})
    assert (answer.status_code, answer.json()["details"]["field"]) == (422, "jobs.5000.retries")


@pytest.mark.parametrize(
    "mount",
    ["/etc", "/a/../../etc:/x", "a:/x", "/a:x", "/a:/b/../..", "/a:/b:rwx", "/a:/b:ro:rw", "", ":"],
)
def test_mounts_outside_of_their_folder_are_rejected(daemon: ApiDaemon, mount: str) -> None:
    is_refused(daemon, body(command=["true"], image="a", mounts=[mount]), field="mounts")


NO_JSON = {
    "nothing": b"",
    "half": b'{"command": ["true"',
    "not UTF-8": b'{"command": ["\xff"]}',
    "UTF-16": '{"command": ["true"]}'.encode("utf-16"),
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep in a field": b'{"command":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "thousands of digits": b'{"command": ["true"], "priority": %s}' % TOO_HUGE.encode(),
    "a list": b'[{"command": ["true"]}]',
    "a number": b"1e999",
    "two in one": b'{"command": ["true"]} {"command": ["true"]}',
    "the same key twice": b'{"command": ["true"], "name": "a", "name": "b"}',
    "the same key twice inside": b'{"command": ["true"], "env": {"A": "1", "A": "2"}}',
}


@pytest.mark.parametrize("content", NO_JSON.values(), ids=NO_JSON)
def test_body_that_is_no_json_object_is_rejected(daemon: ApiDaemon, content: bytes) -> None:
    before = daemon.n_jobs()
    answer = daemon.admin.post("/v1/jobs", content=content, headers=JSON)
    assert answer.status_code in (400, 422), answer.text
    assert set(answer.json()) == {"code", "message", "hint", "details"}
    assert daemon.n_jobs() == before


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "image/png",
        "x",
        "",
    ],
)
def test_other_content_types_are_rejected(daemon: ApiDaemon, kind: str) -> None:
    before = daemon.n_jobs()
    answer = daemon.admin.post(
        "/v1/jobs", content=body(command=["true"]), headers={"Content-Type": kind}
    )
    assert answer.status_code in (400, 415, 422), answer.text
    assert daemon.n_jobs() == before


@pytest.mark.parametrize(
    "word",
    [
        "..",
        "%2e%2e",
        "..%2f..%2fetc",
        "%00",
        "a%0ab",
        "%ff",
        "%ed%a0%80",
        "🔥",
        "x" * 10_000,
        "%25",
    ],
)
@pytest.mark.parametrize("path", ["", "/logs", "/story"])
def test_hostile_job_names_in_paths_are_rejected(daemon: ApiDaemon, word: str, path: str) -> None:
    answer = daemon.admin.get(f"/v1/jobs/{word}{path}")
    assert answer.status_code in (404, 405, 422), answer.text


@pytest.mark.parametrize(
    ("query", "value"),
    [
        (query, value)
        for query in ("worker", "attempt", "tail", "since_s")
        for value in ("-1", "../1", "1e3", "NaN", HUGE, TOO_HUGE, "%00", "²", "x")
        if (query, value) != ("since_s", "1e3")  # That is a time.
    ],
)
def test_invalid_log_queries_are_rejected(daemon: ApiDaemon, query: str, value: str) -> None:
    job = submit(daemon.admin, hold=True)
    answer = daemon.admin.get(f"/v1/jobs/{job}/logs?{query}={value}")
    assert (answer.status_code, answer.json()["details"]) == (422, {"field": query})
    daemon.admin.post(f"/v1/jobs/{job}/cancel")


@pytest.mark.parametrize("value", [b"\xb2", b"9" * 20, b"-1", b"x", b"1.5"])
def test_invalid_event_ids_are_rejected(daemon: ApiDaemon, value: bytes) -> None:
    answer = daemon.admin.get("/v1/events", headers={b"Last-Event-ID": value})
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("days", Raw("NaN")),
        ("days", Raw("Infinity")),
        ("days", Raw("1e308")),
        ("days", Raw(HUGE)),
        ("days", 0),
        ("days", -1),
        ("user", UP),
        ("user", "a\nb"),
        ("user", "\0"),
        ("user", "\ud800"),
        ("user", "x" * MEGABYTE),
        ("scope", "admin"),
    ],
    ids=str,
)
def test_invalid_token_requests_are_rejected(daemon: ApiDaemon, field: str, value: Any) -> None:
    before = len(daemon.admin.get("/v1/tokens").json())
    fields = {"scope": "read_only", field: value}
    answer = daemon.admin.post("/v1/tokens", content=body(**fields), headers=JSON)
    assert (answer.status_code, answer.json()["details"]) == (422, {"field": field}), answer.text
    assert len(answer.content) < 2000
    assert len(daemon.admin.get("/v1/tokens").json()) == before


@pytest.mark.parametrize("policy", ["", "\0", "\ud800", UP, "os:system", "x" * MEGABYTE])
def test_invalid_policies_are_rejected(daemon: ApiDaemon, policy: str) -> None:
    before = daemon.admin.get("/v1/policy").json()
    answer = daemon.admin.put("/v1/policy", content=body(policy=policy), headers=JSON)
    assert answer.status_code in (400, 422), answer.text[:300]
    assert len(answer.content) < 2000
    assert daemon.admin.get("/v1/policy").json() == before


HEAD = "POST /v1/jobs HTTP/1.1\r\nHost: rota\r\nContent-Type: application/json\r\n"
JOB = body(command=["true"], hold=True)
CHUNKED = f"{len(JOB):x}\r\n{JOB}\r\n0\r\n\r\n"
SMUGGLED = {
    "two lengths": f"{HEAD}Content-Length: {len(JOB)}\r\nContent-Length: 3\r\n\r\n{JOB}",
    "length and chunks": f"{HEAD}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKED}",
    "chunks are not last": f"{HEAD}Transfer-Encoding: chunked, identity\r\n\r\n{CHUNKED}",
    "an unknown coding": f"{HEAD}Transfer-Encoding: xchunked\r\n\r\n{CHUNKED}",
    "a space before the colon": f"{HEAD}Content-Length : {len(JOB)}\r\n\r\n{JOB}",
    "a folded line": f"{HEAD}X: a\r\n b: c\r\nContent-Length : {len(JOB)}\r\n\r\n{JOB}",
    "a length with a sign": f"{HEAD}Content-Length: +{len(JOB)}\r\n\r\n{JOB}",
    "a negative length": f"{HEAD}Content-Length: -1\r\n\r\n{JOB}",
    "a length of 10^400": f"{HEAD}Content-Length: {HUGE}\r\n\r\n{JOB}",
    "a chunk of no number": f"{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n{JOB}\r\n0\r\n\r\n",
    "a chunk of 10^400": f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{HUGE}\r\n{JOB}\r\n0\r\n\r\n",
    "no HTTP": "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" * 20,
    "bytes in the path": "GET /v1/\xff\xfe HTTP/1.1\r\nHost: rota\r\n\r\n",
    "NUL in a header": "GET /v1/me HTTP/1.1\r\nHost: rota\r\nX: a\0b\r\n\r\n",
    "a bare line feed": "GET /v1/me HTTP/1.1\nHost: rota\nX: a\rb\n\n",
}


@pytest.mark.parametrize("sent", SMUGGLED.values(), ids=SMUGGLED)
def test_ambiguous_http_requests_are_rejected(daemon: ApiDaemon, sent: str) -> None:
    before = daemon.n_jobs()
    with daemon.raw() as connection:
        connection.sendall(sent.encode("latin-1"))
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
    assert problem_of(answer)["code"] == "bad_request"
    assert daemon.n_jobs() == before


def test_chunked_body_is_accepted(daemon: ApiDaemon) -> None:
    with daemon.raw() as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{CHUNKED}".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("is_chunked", [True, False])
def test_incomplete_body_is_not_executed(daemon: ApiDaemon, is_chunked: bool) -> None:
    """The received part is a complete job."""
    before = daemon.n_jobs()
    half = f"{len(JOB):x}\r\n{JOB}\r\n" if is_chunked else JOB
    how = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(JOB) + 10}"
    with daemon.raw() as connection:
        connection.sendall(f"{HEAD}{how}\r\n\r\n{half}".encode())
    assert daemon.is_well()
    assert daemon.n_jobs() == before
