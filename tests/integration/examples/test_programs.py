"""The examples that do not use rota."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.torch.attempts import environment
from tests.integration.trainer.fake_daemon import daemon
from tests.support.processes import started
from tests.support.timeouts import PATIENCE_S
from tests.tidy.tree import ROOT

EXAMPLES = ROOT / "examples"


def test_plain_script_saves_at_sigterm_and_resumes(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    command = [sys.executable, str(EXAMPLES / "plain_sigterm.py"), "--epochs=6", f"--file={file}"]
    with started([*command, "--seconds-per-epoch=0.3"], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"begins at epoch 0\n"
        first.stdout.readline()
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=PATIENCE_S) == 143
    done = json.loads(file.read_text())["epoch"]
    assert 1 <= done < 6
    second = subprocess.run(
        [*command, "--seconds-per-epoch=0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert second.stdout.startswith(f"begins at epoch {done}\n")
    assert second.stdout.endswith(f"sum {sum(number**2 for number in range(6))}\n")


def test_wrapper_reads_the_output_of_a_program_in_another_language(tmp_path: Path) -> None:
    pattern = "epoch (?P<epoch>[0-9]+)/(?P<epochs>[0-9]+) loss (?P<loss>[0-9.]+)"
    assert f"'{pattern}'" in (EXAMPLES / "progress_lines.sh").read_text()
    program = ["sh", str(EXAMPLES / "progress_lines.sh"), "4", "0.05"]
    with daemon(tmp_path / "socket") as rota:
        env = {**environment(rota.url, tmp_path, attempt=2), "EPOCHS_DONE": "1.0"}
        wrapped = subprocess.run(
            [
                sys.executable,
                "-m",
                "rota_trainer",
                "run",
                "--progress-regex",
                pattern,
                "--",
                *program,
            ],
            env={"PYTHONPATH": str(ROOT / "trainer" / "src"), "PATH": "/usr/bin:/bin", **env},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        last = rota.reports[-1]
    assert wrapped.stdout == "".join(f"epoch {n}/4 loss 0.{1000 // n}\n" for n in (2, 3, 4))
    assert (last["epochs_done"], last["epochs_total"]) == (4.0, 4.0)
