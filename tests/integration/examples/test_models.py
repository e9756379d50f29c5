"""Every example that trains a model: alone, and with a stop in between and the same result."""

import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.integration.torch.attempts import STOPPED, environment
from tests.integration.torch.fork_server import Child, TorchForkServer
from tests.integration.trainer.fake_daemon import FakeDaemon, daemon
from tests.support.ports import reserve_port
from tests.tidy.tree import ROOT

EPOCHS = 5
NEEDS = {
    "image_ddp.py": ["torch"],
    "transformer.py": ["torch"],
    "lightning_model.py": ["torch", "lightning"],
    "keras_model.py": ["torch", "keras"],
    "numpy_model.py": ["numpy"],
}
SMALL = {
    "image_ddp.py": "--pictures=64",
    "transformer.py": "--sums=128",
    "lightning_model.py": "--points=256",
    "keras_model.py": "--points=256",
    "numpy_model.py": "--points=256",
}


class Case:
    """One example in its own folder."""

    def __init__(self, name: str, fork_server: TorchForkServer, folder: Path) -> None:
        missing = [each for each in NEEDS[name] if importlib.util.find_spec(each) is None]
        if missing:
            pytest.skip(f"{name} needs {missing}, which are not installed")
        self._name = name
        self._nursery = fork_server
        self.folder = folder

    def start(self, *options: str, env: Mapping[str, str], weights: str) -> Child:
        """Start the example; the name of its weights file is one that numpy does not change."""
        suffix = ".npy" if self._name == "numpy_model.py" else ".npz"
        argv = [str(ROOT / "examples" / self._name), f"--epochs={EPOCHS}", SMALL[self._name]]
        argv += [f"--weights={self.folder / (weights + suffix)}", *options]
        return self._nursery.run(argv, env, cwd=self.folder)

    def weights(self, name: str) -> str:
        """A hash of all numbers, without times and names in the files."""
        if self._name in ("numpy_model.py", "keras_model.py"):
            return _of_numpy(next(self.folder.glob(f"{name}.np*")))
        return _of_torch(self.folder / f"{name}.npz")


@pytest.fixture(params=sorted(NEEDS))
def case(request: pytest.FixtureRequest, fork_server: TorchForkServer, tmp_path: Path) -> Case:
    return Case(request.param, fork_server, tmp_path)


def test_example_has_the_same_result_after_a_stop(case: Case) -> None:
    alone = case.start(env={}, weights="alone")
    assert lines(alone) == EPOCHS
    assert alone.wait() == 0

    with daemon(case.folder / "socket") as rota:
        env = environment(rota.url, case.folder, attempt=1)
        first = case.start("--seconds-per-epoch=0.6", env=env, weights="stopped")
        first.stdout.readline()
        rota.stop(0)
        n_done = 1 + lines(first)
        assert first.wait() == STOPPED
        assert n_done < EPOCHS
        assert not list(case.folder.glob("stopped*"))
        assert any("loss" in report["metrics"] for report in rota.reports)
        last = rota.reports[-1]
        assert (last["epochs_total"], last["epochs_saved"]) == (EPOCHS, last["epochs_done"])
        assert last["epochs_done"] >= n_done
    second = case.start(
        env=environment("unix:///nowhere", case.folder, attempt=2), weights="stopped"
    )
    assert n_done + lines(second) == EPOCHS
    assert second.wait() == 0
    assert case.weights("stopped") == case.weights("alone")


def test_two_workers_train_one_image_model(fork_server: TorchForkServer, tmp_path: Path) -> None:
    case = Case("image_ddp.py", fork_server, tmp_path)
    assert together(case, "unix:///nowhere", weights="undisturbed") == [0, 0]
    for file in (tmp_path / "checkpoints").iterdir():
        file.rename(tmp_path / f"old-{file.name}")
    with daemon(tmp_path / "socket") as rota:
        assert together(case, rota.url, weights="stopped", rota=rota) == [STOPPED, STOPPED]
    assert together(case, "unix:///nowhere", weights="stopped") == [0, 0]
    assert case.weights("stopped") == case.weights("undisturbed")


def together(case: Case, url: str, *, weights: str, rota: FakeDaemon | None = None) -> list[int]:
    """With a daemon, only worker 1 is told to stop after the first epoch."""
    port = reserve_port()
    children = []
    for rank in range(2):
        env = environment(url, case.folder, attempt=1, rank=rank)
        env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        pause = "--seconds-per-epoch=0.6" if rota else "--seconds-per-epoch=0"
        children.append(case.start(pause, env=env, weights=weights))
    if rota:
        children[1].stdout.readline()
        rota.stop(1)
    for child in children:
        lines(child)
    return [child.wait() for child in children]


def lines(child: Child) -> int:
    """The number of epochs that the rest of the output reports as finished."""
    return sum(line.startswith(b"epoch ") for line in child.stdout)


def _of_numpy(path: Path) -> str:
    loaded = np.load(path)
    arrays = [loaded] if isinstance(loaded, np.ndarray) else [loaded[key] for key in loaded]
    return hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()


def _of_torch(path: Path) -> str:
    torch = pytest.importorskip("torch")
    tensors = torch.load(path, weights_only=True).values()
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in tensors)).hexdigest()
