"""Reports of a run that saves within an epoch and resumes there."""

from pathlib import Path

from tests.integration.trainer.fake_daemon import daemon, environment, run_training_script, script

# Waits for a line of input where a test checks its reports.
SAVES = """
import sys
import rota_trainer

run = rota_trainer.start(checkpoint_dir="checkpoints", code="the same")
for epoch in run.epochs(3):
    for batch in run.steps(range(4)):
        if batch == 1:
            run.save(lambda path: path.write_text("state"))
            print("saved", flush=True)
            sys.stdin.readline()
            sys.exit()
"""

GOES_ON = """
import sys
import rota_trainer

run = rota_trainer.start(checkpoint_dir="checkpoints", code="the same")
print(run.restore(lambda path: None), flush=True)
sys.stdin.readline()
for epoch in run.epochs(3):
    print("an epoch", flush=True)
    sys.stdin.readline()
    sys.exit()
"""


def test_saved_progress_does_not_exceed_the_progress(tmp_path: Path) -> None:
    with daemon() as rota, script(tmp_path, SAVES, env=environment(rota.url)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        n_before = len(rota.reports)
        # The saved step is still running, so that it is not done yet.
        rota.wait_for(lambda reports: len(reports) > n_before + 1)
        last = rota.distinct[-1]
        assert (last["epochs_done"], last["epochs_saved"]) == (0.25, 0.25)
        process.communicate("\n")


def test_progress_of_a_checkpoint_is_reported_before_the_first_step(tmp_path: Path) -> None:
    run_training_script(tmp_path, SAVES, env=environment(ROTA_JOB="j1"))
    with daemon() as rota, script(tmp_path, GOES_ON, env=environment(rota.url)) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for words in ("True\n", "an epoch\n"):
            assert process.stdout.readline() == words
            n_before = len(rota.reports)
            rota.wait_for(lambda reports, n=n_before: len(reports) > n + 1)
            last = rota.distinct[-1]
            assert (last["epochs_done"], last["epochs_saved"]) == (0.5, 0.5)
            process.stdin.write("\n")
            process.stdin.flush()
        process.communicate()


REFUSES = """
import rota_trainer

run = rota_trainer.start(checkpoint_dir="checkpoints", code="the same")
try:
    run.restore(lambda path: 1 / 0)
except ZeroDivisionError:
    print("begins anew")
for epoch in run.epochs(2):
    print(epoch, list(run.steps("ab")))
"""


def test_run_that_cannot_load_its_checkpoint_reports_no_progress(tmp_path: Path) -> None:
    run_training_script(tmp_path, SAVES, env=environment(ROTA_JOB="j1"))
    done = run_training_script(tmp_path, REFUSES, env=environment(ROTA_JOB="j1"))
    assert done.stdout == "begins anew\n0 ['a', 'b']\n1 ['a', 'b']\n"


TWICE = """
import sys
import rota_trainer

run = rota_trainer.start(checkpoint_dir="checkpoints", code="the same")
run.restore(lambda path: None)
if "expects" in sys.argv:
    run.expect(5)
for total in (3, 5):
    print(list(run.epochs(total, save=lambda path: path.write_text(""))))
"""


def test_second_loop_continues_after_the_first(tmp_path: Path) -> None:
    with daemon() as rota:
        done = run_training_script(tmp_path, TWICE, "expects", env=environment(rota.url))
        assert (done.stdout, done.stderr) == ("[0, 1, 2]\n[3, 4]\n", "")
        assert {report["epochs_total"] for report in rota.reports} <= {None, 5.0}
    again = run_training_script(tmp_path, TWICE, env=environment(ROTA_JOB="j1"))
    assert again.stdout == "[]\n[]\n"
