"""`rota-trainer run`: any program, its output untouched, its progress read from it."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.trainer.fake_daemon import daemon, environment
from tests.support.timeouts import PATIENCE_S

REGEX = r"epoch (?P<epoch>\d+)/(?P<epochs>\d+).*loss (?P<loss>[\d.e+-]+)"


def wrapped(
    *options: str, shell: str, url: str = "", cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "rota_trainer", "run", *options, "--", "sh", "-c", shell],
        env=environment(url),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes], given: bytes = b"") -> tuple[int, bytes, bytes]:
    out, err = process.communicate(given, timeout=PATIENCE_S)
    return process.returncode, out, err


def test_output_input_and_exit_code_are_passed_through() -> None:
    shell = r"cat; printf 'a\000\377\r\nb' ; printf 'no end' >&2; exit 7"
    process = wrapped("--progress-regex", REGEX, shell=shell)
    assert ended(process, b"given") == (7, b"givena\0\xff\r\nb", b"no end")


def test_output_is_passed_through_before_its_line_ends() -> None:
    process = wrapped("--progress-regex", REGEX, shell="printf 'name? '; read name; echo $name")
    assert process.stdout is not None
    assert process.stdout.read(6) == b"name? "
    assert ended(process, b"x\n") == (0, b"x\n", b"")


def test_exit_code_shows_the_signal_that_ended_the_program() -> None:
    assert ended(wrapped(shell="kill -9 $$"))[0] == 128 + 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_signals_are_forwarded_to_the_program(number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    process = wrapped(
        shell=f"trap 'echo got; exit 5' {name}; echo up; while :; do sleep 0.05; done"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert ended(process) == (5, b"got\n", b"")


def test_signal_that_is_ignored_at_the_start_stays_ignored() -> None:
    """As under nohup: the signal reaches neither the wrapper nor the program."""
    shell = "trap 'echo got; exit 5' HUP; echo up; read line; echo end"
    run = f"{sys.executable} -m rota_trainer run -- sh -c {shlex.quote(shell)}"
    process = subprocess.Popen(
        ["sh", "-c", f"trap '' HUP; exec {run}"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGHUP)
    assert ended(process, b"\n") == (0, b"end\n", b"")


def test_stopped_process_tree_gets_no_second_sigterm() -> None:
    """A stop of a whole tree also sends SIGCONT; the first SIGTERM here belongs to such a stop."""
    shell = "trap 'echo got' TERM; echo up; read line; sleep 1; echo end"
    process = wrapped(shell=shell)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert ended(process, b"\n") == (0, b"end\n", b"")


def test_missing_program_fails() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "rota_trainer", "run", "no-such-program"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 127
    assert process.stderr == "rota: cannot run no-such-program: No such file or directory\n"


@pytest.mark.parametrize("pattern", ["(", "epoch [0-9]+", "(?P<epoch>" * 200])
def test_invalid_pattern_is_rejected(pattern: str) -> None:
    code, out, err = ended(wrapped("--progress-regex", pattern, shell="echo ran"))
    assert (code, out) == (2, b"")
    assert b"--progress-regex" in err


def test_program_whose_output_is_closed_ends_by_sigpipe() -> None:
    process = wrapped(shell="while echo line; do :; done; exit 3")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    # `sh` is ended by SIGPIPE, as it would be without the wrapper.
    assert process.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


def test_remaining_processes_of_the_program_are_not_waited_for() -> None:
    process = wrapped(shell="sleep 300 & echo $!; exit 4")
    assert process.stdout is not None
    left = int(process.stdout.readline())
    try:
        assert process.wait(PATIENCE_S) == 4
    finally:
        os.kill(left, signal.SIGKILL)
        process.communicate()


def test_progress_in_both_output_streams_is_reported() -> None:
    shell = """
    echo 'epoch 1/3 loss 0.5'; read go
    printf 'epoch 2/3 loss 2.5e-1\\r' >&2; read go
    echo 'other words'; printf 'epoch 3/3 loss 1'
    """
    with daemon() as rota:
        process = wrapped("--progress-regex", REGEX, shell=shell, url=rota.url)
        assert process.stdin is not None
        for done in (1, 2):
            rota.wait_for(lambda reports, done=done: reports[-1]["epochs_done"] == done)
            process.stdin.write(b"\n")
            process.stdin.flush()
        assert ended(process)[0] == 0
        last = rota.distinct[-1]
        assert (last["epochs_done"], last["epochs_total"], last["epochs_saved"]) == (3, 3, None)
        assert last["hears"] is True
        found = [report["metrics"]["loss"] for report in rota.distinct if report["metrics"]]
        assert found == [0.5, 0.25, 1.0]
        # The duration of the first epoch is unknown, because its start was not seen.
        assert [record["number"] for record in rota.records("epochs")] == [2, 3]


def test_stop_request_sends_sigterm_after_the_next_epoch() -> None:
    shell = """
    trap 'echo saved; exit 0' TERM
    for n in 1 2 3 4; do echo "epoch $n/4 loss 1"; read go; done; echo done
    """
    with daemon() as rota:
        process = wrapped("--progress-regex", REGEX, shell=shell, url=rota.url)
        assert process.stdin is not None
        rota.wait_for(lambda reports: reports[-1]["epochs_done"] == 1)
        rota.order_and_wait(stop="preempted")
        assert process.poll() is None
        process.stdin.write(b"\n")
        process.stdin.flush()
        code, out, err = process.wait(PATIENCE_S), process.stdout, process.stderr
        assert out is not None
        assert err is not None
        assert (code, out.read()) == (0, b"epoch 1/4 loss 1\nepoch 2/4 loss 1\nsaved\n")
        assert err.read() == b"rota: rota requests a stop; sending SIGTERM to the program\n"
        process.communicate()
        assert rota.distinct[-1]["epochs_done"] == 2


def test_stop_request_sends_sigterm_at_once_with_the_option() -> None:
    with daemon() as rota:
        process = wrapped("--stop-at-once", shell="sleep 300", url=rota.url)
        rota.wait_for(lambda reports: reports[-1]["hears"])
        rota.order(stop="preempted")
        assert ended(process)[0] == 128 + signal.SIGTERM


def test_stop_request_after_the_last_epoch_sends_no_signal() -> None:
    shell = "echo 'epoch 1/2 loss 1'; read go; echo 'epoch 2/2 loss 1'; sleep 1; echo done"
    with daemon() as rota:
        process = wrapped("--progress-regex", REGEX, shell=shell, url=rota.url)
        rota.wait_for(lambda reports: reports[-1]["epochs_done"] == 1)
        rota.order_and_wait(stop="preempted")
        assert ended(process, b"\n") == (0, b"epoch 1/2 loss 1\nepoch 2/2 loss 1\ndone\n", b"")


def test_slow_pattern_is_disabled() -> None:
    shell = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '%064d!\\n' 0; done"
    process = wrapped("--progress-regex", "(?P<loss>(0+)+)$", shell=shell)
    code, out, err = ended(process)
    assert (code, out) == (0, (b"0" * 64 + b"!\n") * 12)
    assert b"takes too long on some lines and is disabled" in err


def test_endless_line_passes_through_without_using_memory() -> None:
    n_bytes = 200_000_000
    wrapper = f"{sys.executable} -m rota_trainer run --progress-regex '(?P<epoch>x+y)'"
    limited = f"ulimit -v 400000; exec {wrapper} -- head -c {n_bytes} /dev/zero"
    process = subprocess.Popen(
        ["sh", "-c", limited], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    n_read = 0
    while chunk := os.read(process.stdout.fileno(), 1 << 20):
        n_read += len(chunk)
    assert (process.wait(PATIENCE_S), n_read) == (0, n_bytes)
    process.communicate()


CSV = "epoch,epoch_time_sec,step_time_sec,start_time,workers,total_epochs,local_batch_size,"
CSV += "global_batch_size,loss\n"


def test_csv_file_of_the_program_is_followed(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(f"{CSV}0,10,0.1,2024-01-01 00:00:00.0,2,4,32,64,0.9\n")
    shell = "read go; echo '1,20,0.1,2024-01-01 00:00:10.0,2,4,32,64,0.5' >> log.csv; read go"
    with daemon() as rota:
        process = wrapped("--csv", "log.csv", shell=shell, url=rota.url, cwd=tmp_path)
        assert process.stdin is not None
        rota.wait_for(lambda reports: reports[-1]["epochs_done"] == 1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        rota.wait_for(lambda reports: reports[-1]["epochs_done"] == 2)
        assert ended(process, b"\n")[0] == 0
        (record,) = rota.records("epochs")
        assert (record["number"], record["seconds"]) == (2, 20.0)
        assert (record["steps"], record["samples"]) == (200, 6400)
        assert rota.distinct[-1]["epochs_total"] == 4
        assert [each["metrics"] for each in rota.distinct if each["metrics"]] == [{"loss": 0.5}]


FOLLOWS = """
import sys
import rota_trainer

run = rota_trainer.start()
run.follow_csv("log.csv")
with open("log.csv", "w") as log:
    log.write("epoch,epoch_time_sec,total_epochs,loss\\n0,3,5,1.5\\n")
"""


def test_csv_file_of_a_script_is_followed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FOLLOWS)
    with daemon() as rota:
        subprocess.run(
            [sys.executable, "train.py"],
            env=environment(rota.url),
            cwd=tmp_path,
            check=True,
            timeout=PATIENCE_S,
        )
        last = rota.distinct[-1]
        assert (last["epochs_done"], last["epochs_total"]) == (1.0, 5.0)
        assert last["metrics"] == {"loss": 1.5}
