"""Stops at safe points, requested by rota or by SIGTERM."""

import signal
from pathlib import Path

from tests.integration.trainer.fake_daemon import daemon, environment, run_training_script, script
from tests.support.timeouts import PATIENCE_S

# Waits for a line of input after each step, so that a test decides when it continues.
TRAIN = """
import sys
import rota_trainer

run = rota_trainer.start(checkpoint_dir="checkpoints")
state = []

def save(path):
    path.write_text(repr(state))

def load(path):
    state[:] = eval(path.read_text())

run.restore(load)
saves = {"save": save} if "steps" in sys.argv else {}
for epoch in run.epochs(3, save=save):
    for batch in run.steps(range(4), **saves):
        print(epoch, batch, run.should_stop, flush=True)
        if "asks" in sys.argv:
            sys.stdin.readline()
        state.append((epoch, batch))
print("done", state == [(epoch, batch) for epoch in range(3) for batch in range(4)])
"""


def test_stop_request_ends_the_run_after_the_epoch_and_it_resumes(tmp_path: Path) -> None:
    with daemon() as rota:
        with script(tmp_path, TRAIN, "asks", env=environment(rota.url)) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "0 0 False\n"
            rota.wait_for(lambda reports: reports[-1]["hears"])
            rota.order_and_wait(stop="preempted")
            out, err = process.communicate("\n" * 4)
        assert (process.returncode, err) == (75, "")
        assert out == "0 1 True\n0 2 True\n0 3 True\n"
        last = rota.distinct[-1]
        assert (last["epochs_done"], last["epochs_saved"]) == (1.0, 1.0)
    again = run_training_script(tmp_path, TRAIN, env=environment(ROTA_JOB="j1"))
    assert again.stdout.splitlines()[0] == "1 0 False"
    assert again.stdout.splitlines()[-1] == "done True"


def test_stop_request_ends_the_run_after_the_step_if_steps_can_save(tmp_path: Path) -> None:
    with daemon() as rota:
        with script(tmp_path, TRAIN, "asks", "steps", env=environment(rota.url)) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "0 0 False\n"
            rota.wait_for(lambda reports: reports[-1]["hears"])
            rota.order_and_wait(stop="preempted")
            out, err = process.communicate("\n" * 12)
        assert (process.returncode, out, err) == (75, "", "")
        assert rota.distinct[-1]["epochs_saved"] == 0.25
    again = run_training_script(tmp_path, TRAIN, "steps", env=environment(ROTA_JOB="j1"))
    assert again.stdout.splitlines()[0] == "0 1 False"
    assert again.stdout.splitlines()[-1] == "done True"


def test_stop_request_does_not_interrupt_the_last_epoch(tmp_path: Path) -> None:
    with daemon() as rota:
        with script(tmp_path, TRAIN, "asks", "steps", env=environment(rota.url)) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            process.stdin.write("\n" * 8)
            process.stdin.flush()
            lines = [process.stdout.readline() for _ in range(9)]
            assert lines[-1] == "2 0 False\n"
            rota.wait_for(lambda reports: reports[-1]["epochs_done"] >= 2)
            rota.order_and_wait(stop="preempted")
            out, _ = process.communicate("\n" * 4)
        assert (process.returncode, out) == (0, "2 1 False\n2 2 False\n2 3 False\ndone True\n")
        assert rota.distinct[-1]["epochs_saved"] == 3.0


def test_sigterm_ends_also_the_last_epoch_after_the_step(tmp_path: Path) -> None:
    with script(tmp_path, TRAIN, "asks", "steps", env=environment()) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write("\n" * 9)
        process.stdin.flush()
        lines = [process.stdout.readline() for _ in range(10)]
        assert lines[-1] == "2 1 False\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate("\n" * 4)
    assert (process.returncode, out, err) == (75, "", "")
    again = run_training_script(tmp_path, TRAIN, "steps", env=environment())
    assert again.stdout.splitlines() == ["2 2 False", "2 3 False", "done True"]


def test_sigterm_without_step_saves_ends_after_the_step_with_the_last_save(
    tmp_path: Path,
) -> None:
    with script(tmp_path, TRAIN, "asks", env=environment()) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write("\n" * 5)
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(6)][-1] == "1 1 False\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate("\n" * 4)
    assert (process.returncode, out, err) == (75, "", "")
    again = run_training_script(tmp_path, TRAIN, env=environment())
    assert again.stdout.splitlines()[0] == "1 0 False"


# Sends itself SIGTERM during a save.
TERM_IN_SAVE = """
import os, signal
import rota_trainer

run = rota_trainer.start(checkpoint_dir="checkpoints")

def save(path):
    path.write_text("")
    os.kill(os.getpid(), signal.SIGTERM)

for epoch in run.epochs(3, save=save):
    for batch in run.steps(range(2)):
        print(epoch, batch)
"""


def test_sigterm_during_the_save_after_an_epoch_ends_the_run_there(tmp_path: Path) -> None:
    with daemon() as rota:
        stopped = run_training_script(tmp_path, TERM_IN_SAVE, env=environment(rota.url))
        assert (stopped.returncode, stopped.stderr) == (75, "")
        assert stopped.stdout.splitlines() == ["0 0", "0 1"]
        assert rota.distinct[-1]["epochs_saved"] == 1.0


def test_second_sigterm_kills_the_process(tmp_path: Path) -> None:
    with script(tmp_path, TRAIN, "asks", env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0 0 False\n"
        process.send_signal(signal.SIGTERM)
        # The script waits for input within the step. Repeat the signal: the second one kills it.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(0.05)
            except Exception:  # noqa: BLE001 - still there
                continue
        assert process.returncode == -signal.SIGTERM


BEFORE_THE_LOOP = """
import signal, time
import rota_trainer

run = rota_trainer.start()
try:
    print("ready", flush=True)
    time.sleep(60)
except rota_trainer.Stopped as stopped:
    print(stopped.code, stopped.reason)
"""


def test_sigterm_before_the_loop_ends_the_run_at_once(tmp_path: Path) -> None:
    with script(tmp_path, BEFORE_THE_LOOP, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=PATIENCE_S) == ("75 SIGTERM\n", "")


OWN_HANDLER = """
import os, signal
import rota_trainer

signal.signal(signal.SIGTERM, lambda *_: print("mine"))
run = rota_trainer.start()
for epoch in run.epochs(2):
    for batch in run.steps(range(2)):
        os.kill(os.getpid(), signal.SIGTERM)
print("done")
"""


def test_signal_handler_of_the_script_is_kept(tmp_path: Path) -> None:
    done = run_training_script(tmp_path, OWN_HANDLER, env=environment())
    assert done.stdout.splitlines() == ["mine"] * 4 + ["done"]


FORKS = """
import os, signal
import rota_trainer

run = rota_trainer.start()
for epoch in run.epochs(1):
    child = os.fork()
    if child == 0:
        run.step()
        run.report(loss=99.0)
        print("child", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, flush=True)
        signal.pause()
    print(os.waitpid(child, os.WNOHANG)[0], flush=True)
    input()
    os.kill(child, signal.SIGTERM)
    print("ended by", os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
    child = os.fork()
    if child == 0:
        raise SystemExit(3)
    print("ended with", os.WEXITSTATUS(os.waitpid(child, 0)[1]))
    run.report(loss=1.0)
"""


def test_forked_child_does_not_report_or_keep_the_handler(tmp_path: Path) -> None:
    with daemon() as rota:
        with script(tmp_path, FORKS, env=environment(rota.url)) as process:
            assert process.stdout is not None
            lines = sorted(process.stdout.readline() for _ in range(2))
            assert lines == ["0\n", "child True\n"]
            out, err = process.communicate("\n", timeout=PATIENCE_S)
        assert (out, err) == (f"ended by {int(signal.SIGTERM)}\nended with 3\n", "")
        assert len(rota.connections) <= 2
        assert [report["metrics"] for report in rota.distinct if report["metrics"]] == [
            {"loss": 1.0}
        ]
