"""Runs attempts of a training script like the engine does, step by step."""

import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.torch.fork_server import TorchForkServer

SCRIPT = Path(__file__).with_name("train.py")
STOPPED = 75


@dataclass
class Step:
    epoch: int
    samples: list[int]


@dataclass
class TrainingHistory:
    """The steps of the training, along the checkpoints from which later attempts resumed."""

    steps: list[Step] = field(default_factory=list)
    n_lost: int = 0
    end: str = ""

    def begin(self, epoch: int, step: int) -> None:
        kept = [each for each in self.steps if each.epoch < epoch]
        kept += [each for each in self.steps if each.epoch == epoch][:step]
        self.n_lost += len(self.steps) - len(kept)
        self.steps = kept

    def hear(self, line: str) -> bool:
        """Handle the next line of the script; False at the end of its output."""
        match line.split():
            case ["begins", epoch, step]:
                self.begin(int(epoch), int(step))
            case ["step", epoch, samples]:
                numbers = [int(each) for each in samples.split(",")]
                self.steps.append(Step(int(epoch), numbers))
            case ["ends", *prints]:
                self.end = " ".join(prints)
            case []:
                return False
            case other:
                raise AssertionError(f"not expected: {other}")
        return True


class Attempt:
    """One process of the script. `history` records its output."""

    def __init__(
        self,
        fork_server: TorchForkServer,
        history: TrainingHistory,
        *options: str,
        env: Mapping[str, str],
        is_heard: bool = True,
    ) -> None:
        self._history = history
        self._child = fork_server.run([str(SCRIPT), *options], env)
        if is_heard:
            self.hear()

    def step(self) -> bool:
        """Let the script do one step; False if the script ended instead."""
        self.allow_step()
        return self.hear()

    def allow_step(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(b".")

    def let_go(self) -> None:
        """Let the script continue without waiting before each step."""
        self._child.stdin.close()

    def steps(self, n_steps: int) -> bool:
        return all(self.step() for _ in range(n_steps))

    def run_on(self) -> int:
        """Let the script run until it exits."""
        self.let_go()
        while self.hear():
            pass
        return self._child.wait()

    def kill(self) -> None:
        self._child.kill()
        assert self.run_on() == -signal.SIGKILL

    def wait(self) -> int:
        return self._child.wait()

    def hear(self) -> bool:
        """Wait for the next line of output; False if the script ended."""
        return self._history.hear(self._child.stdout.readline().decode())


def environment(url: str, folder: Path, *, attempt: int, rank: int = 0) -> dict[str, str]:
    """The environment that rota sets for a worker."""
    return {
        "ROTA_URL": url,
        "ROTA_TOKEN": "open sesame",
        "ROTA_JOB": "j-1",
        "ROTA_ATTEMPT": str(attempt),
        "ROTA_WORKER": f"j-1/{attempt}/{rank}/nonce",
        "ROTA_CHECKPOINT_DIR": str(folder / "checkpoints"),
    }
