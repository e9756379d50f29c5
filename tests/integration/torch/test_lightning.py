"""The callback for Lightning, with the real Lightning."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="lightning is not installed: nothing here trains")

from tests.integration.torch.attempts import STOPPED, environment
from tests.integration.torch.fork_server import Child, TorchForkServer
from tests.integration.trainer.fake_daemon import daemon

SCRIPT = Path(__file__).with_name("train_lightning.py")
EPOCHS = 4
STEPS = 4
NOWHERE = "unix:///nowhere"


@pytest.fixture(scope="module")
def lit() -> Any:
    with TorchForkServer("tests.integration.torch.preload", "lightning.pytorch") as opened:
        yield opened


class Pair:
    """One or two workers and their output: the samples of each step, then the weights."""

    def __init__(
        self, fork_server: TorchForkServer, folder: Path, *options: str, n_workers: int = 1
    ) -> None:
        self._nursery = fork_server
        self._folder = folder
        self._options = options
        self._n_workers = n_workers
        self._n_attempts = 0
        self.said: list[list[str]] = [[] for _ in range(n_workers)]

    def start(self, url: str) -> list[Child]:
        self._n_attempts += 1
        children = []
        for rank in range(self._n_workers):
            env = environment(url, self._folder, attempt=self._n_attempts, rank=rank)
            if self._n_workers > 1:
                env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "NODE_RANK": "0"}
                env |= {"WORLD_SIZE": str(self._n_workers), "MASTER_ADDR": "127.0.0.1"}
                env |= {"MASTER_PORT": str(20_000 + os.getpid() % 20_000 + self._n_attempts)}
            options = [*self._options, f"--workers={self._n_workers}"]
            children.append(self._nursery.run([str(SCRIPT), *options], env))
        return children

    def steps(self, children: list[Child], n_steps: int) -> None:
        for _ in range(n_steps):
            for child in children:
                child.stdin.write(b".")
            for child, said in zip(children, self.said, strict=True):
                said.append(child.stdout.readline().decode())

    def run_on(self, children: list[Child]) -> list[int]:
        for child in children:
            child.stdin.close()
        for child, said in zip(children, self.said, strict=True):
            said += [line.decode() for line in child.stdout]
        return [child.wait() for child in children]


@pytest.mark.parametrize(
    ("options", "n_before"), [(("--every-step",), 6), (("--every-step",), 3), ((), 6)]
)
def test_stop_does_not_change_the_result(
    options: tuple[str, ...], n_before: int, lit: TorchForkServer, tmp_path: Path
) -> None:
    expected = Pair(lit, tmp_path / "undisturbed", *options)
    assert expected.run_on(expected.start(NOWHERE)) == [0]
    stopped = Pair(lit, tmp_path / "stopped", *options)
    with daemon(tmp_path / "socket") as rota:
        children = stopped.start(rota.url)
        stopped.steps(children, n_before)
        rota.stop(0)
        assert stopped.run_on(children) == [STOPPED]
        assert rota.reports[-1]["epochs_saved"] == rota.reports[-1]["epochs_done"]
    n_done = len(stopped.said[0])
    assert n_before <= n_done < EPOCHS * STEPS
    assert options or n_done % STEPS == 0
    assert stopped.run_on(stopped.start(NOWHERE)) == [0]
    assert stopped.said == expected.said


def test_both_workers_stop_if_one_gets_the_request(lit: TorchForkServer, tmp_path: Path) -> None:
    expected = Pair(lit, tmp_path / "undisturbed", "--every-step", n_workers=2)
    assert expected.run_on(expected.start(NOWHERE)) == [0, 0]
    stopped = Pair(lit, tmp_path / "stopped", "--every-step", n_workers=2)
    with daemon(tmp_path / "socket") as rota:
        children = stopped.start(rota.url)
        stopped.steps(children, 1)
        rota.stop(1)
        assert stopped.run_on(children) == [STOPPED, STOPPED]
    assert len(stopped.said[0]) == len(stopped.said[1])
    assert stopped.run_on(stopped.start(NOWHERE)) == [0, 0]
    assert stopped.said == expected.said


def test_training_without_an_end_reports_no_total(lit: TorchForkServer, tmp_path: Path) -> None:
    endless = Pair(lit, tmp_path, "--epochs=-1")
    with daemon(tmp_path / "socket") as rota:
        children = endless.start(rota.url)
        endless.steps(children, EPOCHS * STEPS + 1)
        rota.stop(0)
        assert endless.run_on(children) == [STOPPED]
        assert {report["epochs_total"] for report in rota.reports} == {None}
        assert rota.reports[-1]["epochs_done"] > EPOCHS


def test_saving_at_every_step_needs_a_resumable_loader(
    lit: TorchForkServer, tmp_path: Path
) -> None:
    plain = Pair(lit, tmp_path, "--every-step", "--plain-loader")
    assert plain.run_on(plain.start(NOWHERE)) == [1]
