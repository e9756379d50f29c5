"""Several workers stop after the same step and resume together."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing here trains")

from rota_trainer.torch import agreement  # noqa: E402
from tests.integration.torch.attempts import (  # noqa: E402
    STOPPED,
    Attempt,
    TrainingHistory,
    environment,
)
from tests.integration.torch.fork_server import TorchForkServer  # noqa: E402
from tests.integration.trainer.fake_daemon import daemon  # noqa: E402

EPOCHS = 4
OPTIONS = (f"--epochs={EPOCHS}", "--every-step")
STEPS = 4
"""Steps of each worker in an epoch."""


class Pair:
    """Two concurrent workers, over all attempts."""

    def __init__(self, fork_server: TorchForkServer, folder: Path) -> None:
        self._nursery = fork_server
        self._folder = folder
        self._n_attempts = 0
        self.histories = [TrainingHistory(), TrainingHistory()]

    def start(self, url: str) -> list[Attempt]:
        self._n_attempts += 1
        meet = self._folder / f"meet-{self._n_attempts}"
        children = []
        for rank, history in enumerate(self.histories):
            env = environment(url, self._folder, attempt=self._n_attempts, rank=rank)
            env |= {"RANK": str(rank), "WORLD_SIZE": "2"}
            attempt = Attempt(
                self._nursery, history, *OPTIONS, f"--meet={meet}", env=env, is_heard=False
            )
            children.append(attempt)
        for attempt in children:
            attempt.hear()
        return children


@pytest.fixture
def pair(fork_server: TorchForkServer, tmp_path: Path) -> Pair:
    return Pair(fork_server, tmp_path)


@pytest.fixture(scope="session")
def undisturbed(
    fork_server: TorchForkServer, tmp_path_factory: pytest.TempPathFactory
) -> list[TrainingHistory]:
    alone = Pair(fork_server, tmp_path_factory.mktemp("undisturbed"))
    assert to_the_end(alone.start("unix:///nowhere")) == [0, 0]
    return alone.histories


def to_the_end(attempts: list[Attempt]) -> list[int]:
    for attempt in attempts:
        attempt.let_go()
    return [attempt.run_on() for attempt in attempts]


def in_step(attempts: list[Attempt], n_steps: int) -> None:
    for _ in range(n_steps):
        for attempt in attempts:
            attempt.allow_step()
        assert [attempt.hear() for attempt in attempts] == [True, True]


@pytest.mark.parametrize("hearing", [0, 1])
def test_both_workers_stop_at_the_same_step_if_one_gets_the_request(
    hearing: int, pair: Pair, undisturbed: list[TrainingHistory], tmp_path: Path
) -> None:
    with daemon(tmp_path / "socket") as rota:
        attempts = pair.start(rota.url)
        in_step(attempts, STEPS + 1)
        rota.stop(hearing)
        assert to_the_end(attempts) == [STOPPED, STOPPED]
    counts = [len(history.steps) for history in pair.histories]
    assert counts[0] == counts[1] < EPOCHS * STEPS
    assert to_the_end(pair.start("unix:///nowhere")) == [0, 0]
    for history, expected in zip(pair.histories, undisturbed, strict=True):
        assert history.n_lost == 0
        assert history == expected


def test_killed_worker_ends_the_attempt_and_the_next_one_resumes(
    pair: Pair, undisturbed: list[TrainingHistory]
) -> None:
    attempts = pair.start("unix:///nowhere")
    in_step(attempts, STEPS + 2)
    attempts[1].kill()
    attempts[0].let_go()
    assert attempts[0].run_on() not in (0, STOPPED)
    assert to_the_end(pair.start("unix:///nowhere")) == [0, 0]
    for history, expected in zip(pair.histories, undisturbed, strict=True):
        assert history.steps == expected.steps
        assert history.end == expected.end


def test_each_sample_is_used_once_by_one_worker(undisturbed: list[TrainingHistory]) -> None:
    for epoch in range(EPOCHS):
        seen = [
            sample
            for history in undisturbed
            for step in history.steps
            if step.epoch == epoch
            for sample in step.samples
        ]
        assert sorted(seen) == list(range(64))


@contextlib.contextmanager
def current_gpu(index: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_device", lambda: index)
        yield


@pytest.mark.parametrize(
    ("backends", "device"),
    [
        ("cpu:gloo,cuda:gloo", "cpu"),
        ("cpu:gloo,cuda:nccl", "cpu"),
        ("gloo", "cpu"),
        ("cuda:nccl", "cuda:3"),
        ("nccl", "cuda:3"),
    ],
)
def test_agreement_uses_the_device_of_the_process_group(backends: str, device: str) -> None:
    with current_gpu(3):
        assert str(agreement.device_for(backends)) == device
