"""Who is who: uids, names, namespaces of peers, and the owner of the state directory."""

import os
import pwd
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api.peer import Peer, peer_of
from rota.config.paths import make_state_dir
from rota.daemon.access.accounts import account_of_uid, parse_accounts, require_unchanged_account
from rota.errors import UserError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
ACCOUNTS = {"ada": 1000, "1234": 77, "root": 0}
CONNECT = """
import os, socket, sys
os.chdir(sys.argv[1])
if sys.argv[2:]:
    uid = int(sys.argv[2])
    os.setgroups([]), os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
connection = socket.socket(socket.AF_UNIX)
connection.connect("s")
connection.recv(1)
"""


@pytest.fixture(autouse=True)
def _accounts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "accounts" in request.fixturenames:
        use_accounts(monkeypatch, ACCOUNTS)


@pytest.fixture
def accounts() -> dict[str, int]:
    return ACCOUNTS


def use_accounts(monkeypatch: pytest.MonkeyPatch, accounts: dict[str, int]) -> None:
    by_uid = {uid: name for name, uid in accounts.items()}

    def of_name(name: str) -> Any:
        return SimpleNamespace(pw_name=name, pw_uid=accounts[name])

    monkeypatch.setattr(pwd, "getpwuid", lambda uid: of_name(by_uid[uid]))
    monkeypatch.setattr(pwd, "getpwnam", of_name)


def peer_that_runs(folder: Path, *runner: str, uid: str = "") -> Peer:
    """The peer of a process that `runner` starts, and that changes to a `uid`."""
    folder.chmod(0o755)
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen()
        listener.settimeout(30)
        command = [*runner, sys.executable, "-c", CONNECT, str(folder), *([uid] if uid else [])]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            connection, _ = listener.accept()
            with connection:
                found = peer_of(connection)
            process.wait()
    assert found is not None
    return found


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("p")


def test_a_plain_peer_is_not_contained(short: Path) -> None:
    peer = peer_that_runs(short)
    assert (peer.uid, peer.is_contained) == (os.geteuid(), False)


@pytest.mark.parametrize(
    "runner",
    [
        ("unshare", "--user", "--map-root-user"),
        ("unshare", "--user", "--map-current-user"),
        ("unshare", "--user", "--map-root-user", "--pid", "--fork"),
    ],
)
def test_a_peer_in_another_namespace_is_contained(short: Path, runner: tuple[str, ...]) -> None:
    assert peer_that_runs(short, *runner).is_contained


@needs_root
def test_root_of_a_container_without_a_user_namespace_is_contained(short: Path) -> None:
    peer = peer_that_runs(short, "unshare", "--pid", "--fork")
    assert (peer.uid, peer.is_contained) == (0, True)


def test_a_peer_that_has_ended_is_contained(short: Path) -> None:
    """Another process may have its pid by now."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "s"))
        listener.listen()
        command = [sys.executable, "-c", CONNECT.replace("connection.recv(1)", ""), str(short)]
        subprocess.run(command, check=True)
        connection, _ = listener.accept()
        with connection:
            found = peer_of(connection)
    assert found is not None
    assert found.is_contained


@needs_root
@pytest.mark.parametrize("uid", [2**31, 2**32 - 2])
def test_uids_are_unsigned(short: Path, uid: int) -> None:
    peer = peer_that_runs(short, uid=str(uid))
    assert (peer.uid, peer.gid, peer.is_contained) == (uid, uid, False)


def test_accounts_have_unsigned_uids() -> None:
    assert parse_accounts(["ada=4294967294:5"])["ada"].uid == 2**32 - 2
    with pytest.raises(UserError):
        parse_accounts(["ada=4294967295:5"])


def test_a_reused_uid_has_the_name_of_its_new_user(monkeypatch: pytest.MonkeyPatch) -> None:
    use_accounts(monkeypatch, {"ada": 1000})
    assert account_of_uid(1000) == ("ada", 1000)
    use_accounts(monkeypatch, {"bob": 1000})
    assert account_of_uid(1000) == ("bob", 1000)


@pytest.mark.usefixtures("accounts")
def test_a_numeric_name_is_no_uid(tmp_path: Path) -> None:
    assert account_of_uid(77) == ("1234", 77)
    assert account_of_uid(1234, subuid_file=tmp_path / "none") == ("uid:1234", 1234)


@pytest.mark.usefixtures("accounts")
@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        (100000, ("ada", 1000)),
        (165535, ("ada", 1000)),
        (165536, ("uid:165536", 165536)),
        (200000, ("ada", 1000)),
        (300000, ("uid:300000", 300000)),
    ],
)
def test_a_subordinate_uid_is_its_owner(
    tmp_path: Path, uid: int, expected: tuple[str, int]
) -> None:
    file = tmp_path / "subuid"
    file.write_text("broken\nada:100000:65536\n1000:200000:10\nroot:300000:10\ngone:100000:5\n")
    assert account_of_uid(uid, subuid_file=file) == expected


@pytest.mark.usefixtures("accounts")
def test_a_job_does_not_run_as_the_next_user_of_its_uid() -> None:
    require_unchanged_account("ada", 1000)
    require_unchanged_account("uid:5", 5)
    with pytest.raises(UserError, match="now belongs to ada"):
        require_unchanged_account("bob", 1000)
    with pytest.raises(UserError, match="now belongs to ada"):
        require_unchanged_account("uid:1000", 1000)


def loosen_folder(state: Path) -> str:
    state.chmod(0o775)
    return f"chmod go-w {state}"


def loosen_config(state: Path) -> str:
    (state / "config.toml").touch()
    (state / "config.toml").chmod(0o666)
    return f"chmod go-w {state}/config.toml"


def give_away(state: Path) -> str:
    os.chown(state, 4242, -1)
    return f"chown 0 {state}"


@pytest.mark.parametrize(
    "loosen", [loosen_folder, loosen_config, pytest.param(give_away, marks=needs_root)]
)
def test_a_state_directory_of_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loosen: Callable[[Path], str]
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("ROTA_HOME", str(state))
    make_state_dir()
    command = loosen(state)
    with pytest.raises(UserError) as caught:
        make_state_dir()
    assert command in caught.value.hint
    subprocess.run(["sh", "-c", command], check=True)
    make_state_dir()


def test_a_busy_daemon_still_knows_its_peers(short: Path) -> None:
    """`select` fails for descriptors above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        assert not peer_that_runs(short).is_contained
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
