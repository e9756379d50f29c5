"""`rota exec` and `rota shell` with real processes."""

import fcntl
import hashlib
import hmac
import os
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from rota.client import Client
from rota.client.exec import WebSocketSession, open_exec, run
from rota.client.http import AnswerError
from rota.daemon.access.tokens import JOB_PREFIX, KEY_NAME
from rota.errors import UnavailableError
from rota.wire.codec import dump
from rota.wire.exec import WINDOW_BYTES, ExecRequest
from tests.integration.sessions.daemon import (
    STUBBORN,
    Daemon,
    OnTerminal,
    processes,
    until,
)
from tests.support.timeouts import PATIENCE_S

NOBODY = 65534
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may run as another user")


def test_streams_and_exit_code(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    script = "cat; echo bad >&2; exit 7"
    done = daemon.cli("exec", job_id, "--", "sh", "-c", script, stdin=None, input=b"good\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"good\n", b"bad\n")


def test_environment_and_workdir(daemon: Daemon, rota: Client, tmp_path: Path) -> None:
    job_id = daemon.run(rota, env={"MINE": "a"}, workdir=str(tmp_path), name="named")
    script = 'pwd; echo $MINE $ROTA_JOB $ROTA_JOB_NAME; test -n "$CUDA_VISIBLE_DEVICES"'
    done = daemon.cli("exec", "named", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == f"{tmp_path}\na {job_id} named\n"


@pytest.mark.parametrize("n_bytes", [0, 1024**2, 8 * 1024**2])
def test_input_is_echoed(daemon: Daemon, rota: Client, n_bytes: int) -> None:
    """More than all buffers hold, so that both directions are full at once."""
    job_id = daemon.run(rota)
    written = os.urandom(n_bytes)
    done = daemon.cli("exec", job_id, "--", "cat", stdin=None, input=written)
    assert done.returncode == 0, done.stderr
    assert done.stdout == written


def test_unread_input(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    done = run(rota, job_id, command=["true"], written=bytes(4 * WINDOW_BYTES))
    assert (done.exit_code, done.output) == (0, b"")


def test_slow_client_blocks_the_command(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    with open_exec(
        rota, job_id, request=ExecRequest(["sh", "-c", "head -c 30000000 /dev/zero"])
    ) as session:
        frames = session.frames()
        next(frames)
        found = daemon.cli("exec", job_id, "--", "pgrep", "-x", "head")
        assert found.returncode == 0, "the command waits for its output to be taken"
        assert sum(len(chunk) for _, chunk in frames) > 29_000_000
    assert session.exit_code == 0


def test_missing_program(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    done = daemon.cli("exec", job_id, "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr.startswith(b"rota: program 'no-such-program' not found in PATH")


def test_worker_option(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    assert run(rota, job_id, command=["true"], worker=0).exit_code == 0
    with pytest.raises(AnswerError, match="has no worker 3") as refused:
        run(rota, job_id, command=["true"], worker=3)
    assert refused.value.code == "not_found"


def test_job_that_does_not_run(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    rota.cancel(job_id)
    rota.wait(job_id)
    done = daemon.cli("exec", job_id, "--", "true")
    assert done.returncode == 2
    assert b"does not run: it was cancelled" in done.stderr


def test_cancelled_job_ends_its_commands(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    running = daemon.cli_in_background("exec", job_id, "--", "sh", "-c", STUBBORN)
    assert running.stdout is not None
    assert running.stdout.readline() == b"here\n"
    rota.cancel(job_id)
    assert rota.wait(job_id).state == "cancelled"
    assert not processes(job_id)
    _, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 137
    assert errors == b"rota: worker ended\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_disconnected_client_ends_its_command(
    daemon: Daemon, rota: Client, number: signal.Signals
) -> None:
    job_id = daemon.run(rota)
    n_before = len(processes(job_id))
    running = daemon.cli_in_background("exec", job_id, "--", "sh", "-c", STUBBORN)
    assert running.stdout is not None
    assert running.stdout.readline() == b"here\n"
    running.send_signal(number)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == (130 if number == signal.SIGINT else -9)
    until(lambda: len(processes(job_id)) <= n_before)
    assert rota.show(job_id).job.state == "running"


def test_killed_daemon_leaves_no_command_behind(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    n_before = len(processes(job_id))
    running = daemon.cli_in_background("exec", job_id, "--", "sh", "-c", STUBBORN)
    assert running.stdout is not None
    assert running.stdout.readline() == b"here\n"
    daemon.kill()
    _, errors = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, errors[:25]) == (1, b"rota: lost the connection")
    until(lambda: len(processes(job_id)) <= n_before)
    daemon.start()
    with daemon.client() as again:
        until(lambda: again.show(job_id).job.state == "running")
        assert run(again, job_id, command=["echo", "on"]).output == b"on\n"


def test_limit_of_open_sessions(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    open_ones = [open_exec(rota, job_id, request=ExecRequest(["cat"])) for _ in range(32)]
    sessions = [each.__enter__() for each in open_ones]
    for each in sessions:
        _say_and_hear(each)
    with pytest.raises(AnswerError, match="has 32 commands open"):
        run(rota, job_id, command=["true"])
    for each in open_ones:
        each.__exit__(None, None, None)
    until(lambda: _is_let_in(rota, job_id))


def _say_and_hear(session: WebSocketSession) -> None:
    session.write(b"x")
    assert next(session.frames()) == (1, b"x")


def _is_let_in(rota: Client, job_id: str) -> bool:
    try:
        return run(rota, job_id, command=["true"]).exit_code == 0
    except AnswerError:
        return False


# -- access ---------------------------------------------------------------------------------------


def test_read_only_token_is_rejected(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    token = rota.create_token(scope="read_only").secret
    with daemon.client(token) as reader:
        assert reader.show(job_id).job.state == "running"
        with pytest.raises(AnswerError, match="may only read") as refused:
            run(reader, job_id, command=["true"])
    assert refused.value.code == "forbidden"


def test_token_of_a_job_is_rejected(daemon: Daemon, rota: Client) -> None:
    """The token is created as the daemon does it, whether or not the job got it."""
    job_id = daemon.run(rota)
    key = (daemon.home / KEY_NAME).read_bytes()
    signature = hmac.new(key, f"{job_id}/1".encode(), hashlib.sha256).hexdigest()
    with daemon.client(f"{JOB_PREFIX}{job_id}_1_{signature}") as own:
        assert own.show(job_id).job.state == "running"
        with pytest.raises(AnswerError, match="may only read"):
            run(own, job_id, command=["true"])


def test_unknown_token_is_rejected(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    stranger = daemon.client("rota_nonsense")
    with pytest.raises(AnswerError, match="unknown, expired or revoked token") as refused:
        run(stranger, job_id, command=["true"])
    stranger.close()
    assert refused.value.code == "unauthorized"


@only_root
def test_only_owner_and_administrator_are_allowed(daemon: Daemon, rota: Client) -> None:
    token = rota.create_token(user="nobody").secret
    with daemon.client(token) as nobody:
        theirs = daemon.run(nobody, workdir="/")
        assert run(nobody, theirs, command=["id", "-u"]).output == f"{NOBODY}\n".encode()
        assert run(rota, theirs, command=["id", "-u"]).output == f"{NOBODY}\n".encode()
        ours = daemon.run(rota)
        with pytest.raises(AnswerError, match="belongs to root") as refused:
            run(nobody, ours, command=["true"])
    assert refused.value.code == "forbidden"


@only_root
def test_peer_credentials_of_a_websocket(daemon: Daemon, rota: Client) -> None:
    """Peer credentials work for a WebSocket as for a request."""
    job_id = daemon.run(rota)
    script = (
        "import os, sys; from rota.client import Client; from rota.client.exec import run\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "print(run(Client(sys.argv[1]), sys.argv[2], command=['true']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, daemon.url, job_id],
        env=daemon.env,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert b"belongs to root" in done.stderr


def test_invalid_messages_are_rejected(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    with pytest.raises(AnswerError, match="invalid ExecRequest"):
        run(rota, job_id, command=[1])  # type: ignore[list-item]
    with pytest.raises(AnswerError, match="zero byte"):
        run(rota, job_id, command=["a\0b"])
    with pytest.raises(AnswerError, match="more than 65536 bytes"):
        run(rota, job_id, command=["x" * 70_000])
    with open_exec(rota, job_id, request=ExecRequest(["sleep", "1000"])) as session:
        session._connection.send(dump({"rows": "many"}))
        with pytest.raises(AnswerError, match="invalid TerminalSize"):
            list(session.frames())
    with open_exec(rota, job_id, request=ExecRequest(["sleep", "1000"])) as session:
        for _ in range(8):
            session._send(bytes(1 + WINDOW_BYTES // 4))
        with pytest.raises((AnswerError, UnavailableError)):
            list(session.frames())
    until(lambda: len(processes(job_id)) <= 2)


# -- terminals -----------------------------------------------------------------------------------


def resize(terminal: OnTerminal, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


def test_shell_on_a_terminal(daemon: Daemon, rota: Client) -> None:
    job_id = daemon.run(rota)
    shell = OnTerminal(daemon, "shell", job_id)
    shell.types(b"PS1='> '; stty size; echo $ROTA_JOB; echo go''od\n")
    assert job_id.encode() in shell.says(b"good\r\n")
    resize(shell, 40, 100)
    until(lambda: _size(shell) == b"40 100")
    # Printed by the foreground program: otherwise the shell might take the interrupt.
    shell.types(b"sh -c 'echo slee\"\"ping; exec sleep 1000'\n")
    shell.says(b"sleeping\r\n")
    shell.types(b"\x03")
    shell.says(b"> ")
    shell.types(b"echo interru''pted\n")
    shell.says(b"interrupted\r\n")
    shell.types(b"exit 5\n")
    assert shell.exit_code() == 5


def _size(shell: OnTerminal) -> bytes:
    shell.types(b"echo si''ze $(stty size) o''k\n")
    shell.says(b"size ")
    return shell.says(b" ok")[:-3]


@pytest.mark.parametrize("how", ["exit", "SIGTERM", "cancel"])
def test_terminal_settings_are_restored(daemon: Daemon, rota: Client, how: str) -> None:
    job_id = daemon.run(rota)
    shell = OnTerminal(daemon, "shell", job_id)
    before = termios.tcgetattr(shell.fd)
    shell.types(b"echo rea''dy\n")
    shell.says(b"ready\r\n")
    assert termios.tcgetattr(shell.fd) != before, "it is raw"
    if how == "exit":
        shell.types(b"exit\n")
    elif how == "SIGTERM":
        shell.signal(signal.SIGTERM)
    else:
        rota.cancel(job_id)
    shell.exit_code()
    assert termios.tcgetattr(shell.fd) == before
