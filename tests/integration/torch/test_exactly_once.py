"""Stops and kills do not change the result of a training."""

import functools
import random
import tempfile
import time
from pathlib import Path

import pytest

from tests.integration.torch.attempts import STOPPED, Attempt, TrainingHistory, environment
from tests.integration.torch.fork_server import TorchForkServer
from tests.integration.trainer.fake_daemon import daemon
from tests.support.seed_counts import seeds

pytest.importorskip("torch", reason="torch is not installed: nothing here trains")

EPOCHS = 8
STEPS = 8
SAMPLES = list(range(64))


@functools.cache
def undisturbed(fork_server: TorchForkServer, *options: str) -> TrainingHistory:
    history = TrainingHistory()
    with tempfile.TemporaryDirectory() as folder:
        attempt = Attempt(fork_server, history, *options, env={"ROTA_CHECKPOINT_DIR": folder})
        assert attempt.run_on() == 0
    return history


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize("options", [("--every-step",), ("--every-step", "--loaders=1"), ()])
def test_three_stops_do_not_change_the_result(
    seed: int, options: tuple[str, ...], fork_server: TorchForkServer, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(1, 5 * STEPS), 3))
    history = TrainingHistory()
    for number, moment in enumerate(moments, start=1):
        with daemon(tmp_path / f"{number}.socket") as rota:
            env = environment(rota.url, tmp_path, attempt=number)
            attempt = Attempt(fork_server, history, *options, env=env)
            assert attempt.steps(max(0, moment - len(history.steps)))
            rota.stop(0)
            while attempt.step():
                pass
            assert attempt.wait() == STOPPED
    env = environment("unix:///nowhere", tmp_path, attempt=4)
    assert Attempt(fork_server, history, *options, env=env).run_on() == 0
    assert history.n_lost == 0
    expect_exactly_once(history, undisturbed(fork_server, *options))


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize("options", [(), ("--loaders=1",)])
def test_three_kills_do_not_change_the_result(
    seed: int, options: tuple[str, ...], fork_server: TorchForkServer, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    history = TrainingHistory()
    for number in range(1, 4):
        env = environment("unix:///nowhere", tmp_path, attempt=number)
        attempt = Attempt(fork_server, history, *options, env=env)
        # Often right after the last step of an epoch, when the script saves.
        n_steps = chance.choice([chance.randrange(1, 20), STEPS, 2 * STEPS])
        assert attempt.steps(n_steps)
        time.sleep(chance.uniform(0.0, 0.01))
        attempt.kill()
    env = environment("unix:///nowhere", tmp_path, attempt=4)
    assert Attempt(fork_server, history, *options, env=env).run_on() == 0
    expect_exactly_once(history, undisturbed(fork_server, *options))


@pytest.mark.parametrize("n_steps", [1, STEPS - 1, STEPS])
def test_stop_at_an_end_of_an_epoch_does_not_change_the_result(
    n_steps: int, fork_server: TorchForkServer, tmp_path: Path
) -> None:
    history = TrainingHistory()
    env = environment("unix:///nowhere", tmp_path, attempt=1)
    attempt = Attempt(fork_server, history, "--every-step", f"--term-after={n_steps}", env=env)
    assert attempt.run_on() == STOPPED
    assert len(history.steps) == n_steps
    env = environment("unix:///nowhere", tmp_path, attempt=2)
    assert Attempt(fork_server, history, "--every-step", env=env).run_on() == 0
    assert history.n_lost == 0
    expect_exactly_once(history, undisturbed(fork_server, "--every-step"))


def expect_exactly_once(history: TrainingHistory, expected: TrainingHistory) -> None:
    for epoch in range(EPOCHS):
        seen = [sample for step in history.steps if step.epoch == epoch for sample in step.samples]
        assert sorted(seen) == SAMPLES
    assert history.steps == expected.steps
    assert history.end == expected.end
