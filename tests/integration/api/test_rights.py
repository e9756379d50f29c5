"""Authorization: users cannot reach the jobs, files, logs or tokens of other users."""

import hashlib
import io
import os
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from rota.client import Client
from rota.wire.manifest import ManifestFile, SnapshotManifest
from tests.integration.api.daemon_process import (
    ANNA,
    BERT,
    ApiDaemon,
    eventually,
    interpreter_for_all,
    running,
    submit,
)

SECRET = "hunter2-in-the-open"
FAILS = f"raise ValueError('{SECRET}')"


@pytest.fixture(scope="module")
def anna(daemon: ApiDaemon) -> Iterator[httpx2.Client]:
    with daemon.person(ANNA) as client:
        yield client


@pytest.fixture(scope="module")
def bert(daemon: ApiDaemon) -> Iterator[httpx2.Client]:
    with daemon.person(BERT) as client:
        yield client


@pytest.fixture(scope="module")
def job(daemon: ApiDaemon, anna: httpx2.Client) -> str:
    """A running job of Anna with a secret in its environment."""
    command = ["sh", "-c", f"echo {SECRET}; env; sleep 1000", SECRET]
    made = submit(anna, name="annas", command=command, env={"PASSWORD": SECRET}, gpus="0")
    daemon.reaches(made, "running")
    eventually(lambda: SECRET in anna.get(f"/v1/jobs/{made}/logs").text)
    return made


def test_only_the_owner_reads_logs_command_and_environment(
    anna: httpx2.Client, bert: httpx2.Client, job: str
) -> None:
    assert anna.get(f"/v1/jobs/{job}").json()["request"]["env"] == {"PASSWORD": SECRET}
    for word in (job, "annas", job[-5:]):
        assert bert.get(f"/v1/jobs/{word}/logs").status_code == 403
        shown = bert.get(f"/v1/jobs/{word}")
        assert shown.status_code == 200
        assert SECRET not in shown.text
        assert "PASSWORD" not in shown.text
        assert SECRET not in bert.get(f"/v1/jobs/{word}/story").text
    assert SECRET not in bert.get("/v1/jobs").text


@pytest.mark.parametrize("deed", ["cancel", "hold", "release", "resubmit"])
def test_only_the_owner_changes_a_job(
    daemon: ApiDaemon, bert: httpx2.Client, job: str, deed: str
) -> None:
    before = daemon.n_jobs()
    answer = bert.post(f"/v1/jobs/{job}/{deed}")
    assert answer.status_code == 403
    assert answer.json()["code"] == "forbidden"
    assert (daemon.state(job), daemon.n_jobs()) == ("running", before)


def test_only_the_owner_resizes_a_job(bert: httpx2.Client, job: str) -> None:
    answer = bert.post(f"/v1/jobs/{job}/resize", json={"gpus": 1})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_only_the_owner_edits_a_job(bert: httpx2.Client, job: str) -> None:
    answer = bert.patch(f"/v1/jobs/{job}", json={"priority": 5})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert bert.get(f"/v1/jobs/{job}").json()["job"]["priority"] == 0


def test_owner_and_administrator_edit_a_job(daemon: ApiDaemon, anna: httpx2.Client) -> None:
    mine = held(anna)
    assert anna.patch(f"/v1/jobs/{mine}", json={"name": "new"}).status_code == 200
    assert daemon.admin.patch(f"/v1/jobs/{mine}", json={"retries": 2}).status_code == 200
    story = anna.get(f"/v1/jobs/{mine}/story").json()
    said = [(each["cause"], each["reason"]) for each in story][1:]
    assert said[0] == ("JobEdited", f"name set to new (was true) by {ANNA}")
    assert said[1][1].startswith("retries set to 2 (was 0) by ")


def test_impossible_edit_is_rejected(anna: httpx2.Client, job: str) -> None:
    waits = held(anna)
    for body in ({"priority": 1001}, {"gpus": 2}, {"time_limit": 5}, {"name": 1}):
        answer = anna.patch(f"/v1/jobs/{waits}", json=body)
        assert answer.status_code in (400, 422), (body, answer.text)
    answer = anna.patch(f"/v1/jobs/{waits[1:]}", json={"priority": 1})
    assert answer.json()["code"] == "partial_id"
    answer = anna.patch(f"/v1/jobs/{job}", json={"retries": 1, "cpus": 1})
    assert "this changes only while a job is queued" in answer.json()["message"]
    assert anna.get(f"/v1/jobs/{job}").json()["job"]["priority"] == 0
    anna.post(f"/v1/jobs/{waits}/cancel")
    assert "is over" in anna.patch(f"/v1/jobs/{waits}", json={"retries": 1}).json()["message"]


def test_edit_does_not_exceed_the_limit_of_priorities(
    daemon: ApiDaemon, anna: httpx2.Client
) -> None:
    mine = held(anna)
    answer = anna.patch(f"/v1/jobs/{mine}", json={"priority": 1})
    assert answer.status_code == 422
    assert "1 is above the limit of 0 for users" in answer.json()["message"]
    assert daemon.admin.patch(f"/v1/jobs/{mine}", json={"priority": 50}).status_code == 200
    lowered = anna.patch(f"/v1/jobs/{mine}", json={"priority": 40})
    assert (lowered.status_code, lowered.json()[0]["priority"]) == (200, 40)
    copy = anna.post(f"/v1/jobs/{mine}/resubmit").json()["ids"][0]
    assert anna.get(f"/v1/jobs/{copy}").json()["job"]["priority"] == 0


def held(anna: httpx2.Client, **more: object) -> str:
    return submit(anna, command=["true"], hold=True, **more)


def test_impossible_size_is_rejected(anna: httpx2.Client) -> None:
    elastic = held(anna, gpus="1..2", mode="live")
    cases = {
        elastic: "runs on 1 to 2 GPUs, not 3",
        held(anna, gpus="1..2", mode="fixed"): "its mode is 'fixed'",
        held(anna, gpus="1", mode="live"): "it was submitted with one size only",
    }
    for job_id, words in cases.items():
        answer = anna.post(f"/v1/jobs/{job_id}/resize", json={"gpus": 3})
        assert answer.status_code == 400
        assert words in answer.json()["message"]
    for nonsense in (0, -1, 1.5, "2", True, 2**60):
        answer = anna.post(f"/v1/jobs/{elastic}/resize", json={"gpus": nonsense})
        assert answer.status_code == 422, nonsense
    anna.post(f"/v1/jobs/{elastic}/cancel")
    answer = anna.post(f"/v1/jobs/{elastic}/resize", json={"gpus": 1})
    assert "is over" in answer.json()["message"]


def test_owner_and_administrator_resize_a_job(daemon: ApiDaemon, anna: httpx2.Client) -> None:
    elastic = held(anna, gpus="1..2", mode="live")
    assert anna.post(f"/v1/jobs/{elastic}/resize", json={"gpus": 2}).status_code == 200
    assert daemon.admin.post(f"/v1/jobs/{elastic}/resize", json={"gpus": None}).status_code == 200
    story = anna.get(f"/v1/jobs/{elastic}/story").json()
    said = [(each["cause"], each["after"], each["reason"]) for each in story][1:]
    assert said[0] == ("JobResized", "held", f"resized to 2 by {ANNA}")
    assert said[1][2].startswith("size left to the policy by ")


def test_administrator_cannot_resubmit_a_job_of_another_user(daemon: ApiDaemon, job: str) -> None:
    before = daemon.n_jobs()
    answer = daemon.admin.post(f"/v1/jobs/{job}/resubmit")
    assert answer.status_code == 403
    assert f"belongs to {ANNA}, and would run as" in answer.json()["message"]
    assert daemon.n_jobs() == before


def test_other_users_see_no_log_text_in_reasons(
    daemon: ApiDaemon, anna: httpx2.Client, bert: httpx2.Client
) -> None:
    failed = submit(anna, command=["python3", "-c", FAILS], gpus="0")
    daemon.reaches(failed, "failed")
    places = [f"/v1/jobs/{failed}", f"/v1/jobs/{failed}/story", f"/v1/events?after=0&job={failed}"]
    for place in [*places, "/v1/jobs"]:
        assert SECRET in anna.get(place).text
        assert SECRET not in bert.get(place).text
    shown = bert.get(f"/v1/jobs/{failed}").json()
    assert (shown["job"]["state"], shown["job"]["reason"]) == ("failed", "")
    assert shown["attempts"][0]["workers"][0]["exit_code"] == 1
    with bert.stream("GET", "/v1/events", params={"after": 0}) as everything:
        heard = ""
        for line in everything.iter_lines():
            heard += line
            if f'"job_id":"{failed}"' in line and '"after":"failed"' in line:
                break
    assert SECRET not in heard


def test_other_users_see_no_path_in_reasons(
    daemon: ApiDaemon, anna: httpx2.Client, bert: httpx2.Client
) -> None:
    path = f"/home/{SECRET}"
    failed = submit(anna, command=[path], gpus="0")
    daemon.reaches(failed, "failed")
    for place in (f"/v1/jobs/{failed}", f"/v1/jobs/{failed}/story", "/v1/jobs"):
        assert path in anna.get(place).text
        assert path not in bert.get(place).text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", {"command": ["true"]}),
        ("POST", "/v1/jobs/batch", {"jobs": [{"command": ["true"]}]}),
        ("POST", "/v1/jobs/annas/cancel", None),
        ("POST", "/v1/jobs/annas/hold", None),
        ("POST", "/v1/jobs/annas/release", None),
        ("POST", "/v1/jobs/annas/resize", {"gpus": 1}),
        ("PATCH", "/v1/jobs/annas", {"priority": 5}),
        ("POST", "/v1/jobs/annas/resubmit", None),
        ("POST", "/v1/jobs/move", {"jobs": ["annas"], "to": "lab", "url": "http://127.0.0.1:1"}),
        ("POST", "/v1/tokens", {}),
        ("POST", "/v1/tokens/00/revoke", None),
        ("POST", "/v1/snapshots/missing", {"version": 1, "entries": []}),
        ("POST", "/v1/snapshots", {"version": 1, "entries": []}),
        ("PUT", f"/v1/blobs/{'0' * 64}", None),
        ("PUT", "/v1/policy", {"policy": "fifo"}),
        ("POST", "/v1/nodes/any/drain", None),
        ("POST", "/v1/nodes/any/resume", None),
        ("POST", "/v1/nodes/any/lost", None),
        ("POST", "/v1/stop", None),
    ],
)
@pytest.mark.parametrize("scope", ["read_only", "job"])
def test_read_only_token_changes_nothing(
    daemon: ApiDaemon, job: str, method: str, path: str, body: object, scope: str
) -> None:
    before = daemon.n_jobs()
    secret = daemon.token(ANNA, "read_only") if scope == "read_only" else token_of(daemon, job)
    with daemon.by_tcp(secret) as reader:
        answer = reader.request(method, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (daemon.state(job), daemon.n_jobs()) == ("running", before)


def token_of(daemon: ApiDaemon, job: str) -> str:
    output = daemon.admin.get(f"/v1/jobs/{job}/logs").text
    return next(line for line in output.splitlines() if line.startswith("ROTA_TOKEN="))[11:]


def test_job_token_reaches_only_its_job(daemon: ApiDaemon, job: str) -> None:
    with daemon.by_tcp(token_of(daemon, job)) as worker:
        assert worker.get(f"/v1/jobs/{job}").status_code == 200
        assert worker.get(f"/v1/jobs/{job}/logs").status_code == 200
        other = submit(daemon.admin, name=job, hold=True)
        for path in (f"/v1/jobs/{other}", f"/v1/jobs/{other}/logs", f"/v1/jobs/{other}/story"):
            assert worker.get(path).status_code == 404
        assert worker.get("/v1/events", params={"job": other}).status_code == 404
        assert [each["id"] for each in worker.get("/v1/jobs").json()["jobs"]] == [job]
        for path in ("/v1/tokens", "/v1/nodes"):
            assert worker.get(path).status_code == 403
        for path in ("/v1/jobs/check", "/v1/jobs/plan"):
            answer = worker.post(path, json={"jobs": [{"command": ["true"]}]})
            assert answer.status_code == 403


@pytest.mark.parametrize("who", ["bert", "reader", "worker", "revoked"])
@pytest.mark.parametrize("path", ["exec?", "forward?port=22&"])
def test_other_users_cannot_run_commands_in_a_job(
    daemon: ApiDaemon, job: str, who: str, path: str
) -> None:
    secrets = {"revoked": "rota_gone", "worker": token_of(daemon, job)}
    scope = {"bert": (BERT, "user"), "reader": (ANNA, "read_only")}
    secret = secrets.get(who) or daemon.token(*scope[who])
    status = b"401" if who == "revoked" else b"403"
    answer = upgrade(daemon, f"/v1/jobs/{job}/{path}worker=0", secret)
    assert answer.startswith(b"HTTP/1.1 %s " % status)


def test_owner_can_run_commands_in_a_job(daemon: ApiDaemon, job: str) -> None:
    answer = upgrade(daemon, f"/v1/jobs/{job}/exec?worker=0", daemon.token(ANNA))
    assert answer.startswith(b"HTTP/1.1 101 ")


def upgrade(daemon: ApiDaemon, path: str, secret: str) -> bytes:
    """The first bytes of the response to a WebSocket request."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: rota",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {secret}",
    ]
    with daemon.raw(is_tcp=True) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return connection.recv(65536)


def test_job_token_expires_with_its_attempt(daemon: ApiDaemon, anna: httpx2.Client) -> None:
    short = submit(anna, command=["sh", "-c", "env; sleep 1000"], gpus="0")
    eventually(lambda: "ROTA_TOKEN=" in anna.get(f"/v1/jobs/{short}/logs").text)
    secret = token_of(daemon, short)
    with daemon.by_tcp(secret) as worker:
        assert worker.get("/v1/me").json()["reach"] == "job"
        anna.post(f"/v1/jobs/{short}/cancel")
        daemon.reaches(short, "cancelled")
        assert worker.get("/v1/me").status_code == 401
    forged = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    with daemon.by_tcp(forged) as worker:
        assert worker.get("/v1/me").status_code == 401


def test_tokens_of_other_users_cannot_be_listed_or_revoked(
    anna: httpx2.Client, bert: httpx2.Client
) -> None:
    mine = anna.get("/v1/tokens").json()
    assert mine
    assert {each["user"] for each in mine} == {ANNA}
    assert not any(each["secret"] for each in mine)
    answer = bert.post(f"/v1/tokens/{mine[0]['id']}/revoke")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert anna.get("/v1/me").status_code == 200
    assert anna.post("/v1/tokens", json={"user": BERT}).status_code == 403


def test_revoked_and_expired_tokens_are_rejected(daemon: ApiDaemon) -> None:
    made = daemon.admin.post("/v1/tokens", json={"user": ANNA}).json()
    with daemon.by_tcp(made["secret"]) as client:
        assert client.get("/v1/me").status_code == 200
        assert daemon.admin.post(f"/v1/tokens/{made['id']}/revoke").status_code == 200
        assert client.get("/v1/me").status_code == 401
        assert client.post("/v1/jobs", json={"command": ["true"]}).status_code == 401
    with daemon.by_tcp(daemon.token(ANNA, days=0.2 / 86400)) as client:
        time.sleep(0.3)
        assert client.get("/v1/me").status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Basic YTpi", "Bearer x", "rota_x"])
def test_tcp_needs_a_token(daemon: ApiDaemon, header: str) -> None:
    with httpx2.Client(base_url=daemon.url) as client:
        answer = client.get("/v1/jobs", headers={"Authorization": header} if header else {})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_secrets_are_not_stored_in_clear_text(daemon: ApiDaemon, job: str) -> None:
    secrets = [daemon.token(ANNA), daemon.token(ANNA, "read_only"), token_of(daemon, job)]
    with sqlite3.connect(daemon.folder / "rota.db") as database:
        dump = "\n".join(database.iterdump())
    database.close()
    for secret in secrets:
        assert secret not in dump
        assert secret not in daemon.log()


def test_snapshots_are_private_to_their_owners(
    daemon: ApiDaemon, anna: httpx2.Client, bert: httpx2.Client, tmp_path: Path
) -> None:
    """Under an ordinary user's daemon, all jobs run as that user and share the user's snapshots."""
    if os.geteuid() != 0:
        pytest.skip("only root can be several users")
    (tmp_path / "train.py").write_text(SECRET)
    with Client(daemon.endpoint, token=anna.headers["authorization"].partition(" ")[2]) as client:
        shipped = client.ship(tmp_path)
    wanted = {"jobs": [{"command": ["true"], "snapshot": shipped}]}
    assert anna.post("/v1/jobs/check", json=wanted).status_code == 200
    for other in (bert, daemon.admin):
        refused = other.post("/v1/jobs/check", json=wanted)
        assert (refused.status_code, refused.json()["details"]) == (422, {"field": "snapshot"})
    manifest = SnapshotManifest.of([ManifestFile("train.py", hash_of(SECRET), len(SECRET), False)])
    missing = bert.post("/v1/snapshots/missing", content=manifest.to_json()).json()["missing"]
    assert missing == [hash_of(SECRET)]
    assert bert.post("/v1/snapshots", content=manifest.to_json()).status_code == 400
    paths = (f"/v1/snapshots/{shipped}", f"/v1/blobs/{hash_of(SECRET)}")
    assert [anna.get(path).content for path in paths] == [manifest.to_json(), SECRET.encode()]
    for other in (bert, daemon.admin):
        assert [other.get(path).status_code for path in paths] == [400, 400]


def test_only_the_job_fetches_the_code_that_was_shipped_with_it(
    daemon: ApiDaemon, anna: httpx2.Client, job: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SECRET)
    with Client(daemon.endpoint, token=anna.headers["authorization"].partition(" ")[2]) as client:
        shipped = client.ship(tmp_path)
    command = ["sh", "-c", "env; sleep 1000"]
    made = submit(anna, command=command, gpus="0", snapshot=shipped, workdir="")
    eventually(lambda: "ROTA_TOKEN" in anna.get(f"/v1/jobs/{made}/logs").text)
    with daemon.by_tcp(token_of(daemon, made)) as worker:
        answer = worker.get("/v1/code")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        [train] = archive.getmembers()
        found = archive.extractfile(train)
        assert found is not None
        assert (train.name, found.read()) == ("train.py", SECRET.encode())
    for other in (anna, daemon.admin):
        assert other.get("/v1/code").status_code == 403
    with daemon.by_tcp(token_of(daemon, job)) as another:
        assert another.get("/v1/code").status_code == 404
    anna.post(f"/v1/jobs/{made}/cancel")


MOVE = {"jobs": ["annas"], "to": "lab", "url": "http://127.0.0.1:1", "token": "t", "after": "1h"}


@pytest.mark.usefixtures("job")
def test_only_the_owner_moves_a_job(daemon: ApiDaemon, bert: httpx2.Client) -> None:
    for other in (bert, daemon.admin):
        refused = other.post("/v1/jobs/move", json=MOVE)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "unix:///var/lib/rota/rota.sock"),
        ("url", "http://169.254.169.254"),
        ("url", "http://[fe80::1]:80"),
        ("url", "http://u:p@host"),
        ("url", "http://host/path"),
        ("url", "http://host:0"),
        ("url", "ftp://host"),
        ("url", "http://"),
        ("to", "../lab"),
        ("to", ""),
        ("after", "soon"),
        ("after", "-1s"),
        ("token", "secret word"),
        ("token", "s" * 20_000),
    ],
)
def test_invalid_move_target_is_rejected(anna: httpx2.Client, field: str, value: str) -> None:
    refused = anna.post("/v1/jobs/move", json={**MOVE, "jobs": [], field: value})
    assert (refused.status_code, refused.json()["details"]) == (422, {"field": field})
    assert "secret" not in refused.text


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_tokens_cannot_run_jobs_as_root(daemon: ApiDaemon) -> None:
    if os.geteuid() != 0:
        pytest.skip("only a daemon of root could")
    for user in ("root", "", "no-such-account"):
        answer = daemon.admin.post("/v1/tokens", json={"user": user})
        assert answer.status_code == 403, answer.text
    with daemon.person("root", "read_only") as reader:
        assert reader.post("/v1/jobs", json={"command": ["id"]}).status_code == 403


def test_daemon_of_an_ordinary_user_rejects_other_users() -> None:
    """Folder and socket are open to all here, so that the daemon itself has to reject."""
    if os.geteuid() != 0:
        pytest.skip("takes other uids")
    if not interpreter_for_all():
        pytest.skip("no other user can run this program")
    with running(uid=65534) as daemon:
        assert daemon.admin.get("/v1/me").json() == {
            "user": "root",
            "is_admin": True,
            "reach": "full",
        }
        Path(daemon.socket).chmod(0o666)
        assert ask_as(65534, daemon.socket) == 200
        assert ask_as(1, daemon.socket) == 401


def ask_as(uid: int, path: str) -> int:
    """The HTTP status that another user gets."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(uid, uid, uid)
        transport = httpx2.HTTPTransport(uds=path)
        answer = httpx2.Client(transport=transport).get("http://rota/v1/me")
        os.write(writing, str(answer.status_code).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = int(pipe.read())
    os.waitpid(child, 0)
    return found
