"""A live queue on virtual GPUs: two users, jobs that really train, and one that cannot wait.

Everything happens in a folder of its own that is removed at the end, Ctrl-C included.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from demo_view import URGENT, say, summary, watch

import rota_trainer
from rota.client import Client, JobRequest
from rota.errors import RotaError
from rota.wire.jobs import FINAL_STATES

GPUS = "4x16GiB"
CONFIG = 'min_runtime = "1s"\nrestart_cost = "0s"\npolicy = "fifo"\n'
HERE = Path(__file__).resolve().parent
EPOCHS = 12
EPOCH_S = 1.3
URGENT_S = 5
LONGEST_S = 110.0
"""The end of everything takes a moment, too."""

Submit = Callable[[JobRequest], None]


def main() -> int:
    began_s = time.monotonic()
    has_torch = importlib.util.find_spec("torch") is not None
    library = "torch" if has_torch else "numpy, because torch is not installed,"
    say(f"rota demo: two users share four virtual GPUs and train with {library} on CPUs")
    say("two minutes at most; Ctrl-C ends it")
    with folder() as home, daemon(home):
        first, second = users()
        for job in with_torch() if has_torch else with_numpy():
            first(job)
        second(work("sweep", gpus="1", seconds=1, array="3"))
        second(work("tune", gpus="0.5", seconds=2))
        urgent = work(URGENT, gpus="3", seconds=URGENT_S, priority=10)
        stops = watch(lambda: second(urgent), until_s=began_s + LONGEST_S)
        summary(stops)
    say("\nThe daemon is down and its folder is gone. To go on: 'rota up --detach', 'rota submit'.")
    return 0


# -- jobs -----------------------------------------------------------------------------------------


def with_torch() -> list[JobRequest]:
    """`resnet` has two workers, which agree on where to stop."""
    return [
        train("resnet", "image_ddp.py", size="--pictures=128", gpus="2"),
        train("gpt", "transformer.py", size="--sums=256", gpus="1"),
    ]


def with_numpy() -> list[JobRequest]:
    return [
        train("large", "numpy_model.py", size="--points=2048", gpus="2"),
        train("small", "numpy_model.py", size="--points=512", gpus="1"),
    ]


def train(name: str, script: str, *, size: str, gpus: str) -> JobRequest:
    length = [f"--epochs={EPOCHS}", f"--seconds-per-epoch={EPOCH_S}"]
    command = [sys.executable, str(HERE / script), size, *length]
    has_peers = script == "image_ddp.py"
    return JobRequest(
        command,
        name=name,
        gpus=gpus,
        gpus_per_worker=1 if has_peers else int(gpus),
        epochs=EPOCHS,
        env={"PYTHONPATH": str(Path(rota_trainer.__file__).parents[1])},
        workdir="/",
    )


def work(name: str, *, gpus: str, seconds: int, priority: int = 0, array: str = "") -> JobRequest:
    """Anything else that runs on a GPU."""
    command = ["sleep", str(seconds)]
    return JobRequest(command, name=name, gpus=gpus, priority=priority, array=array, workdir="/")


# -- people ---------------------------------------------------------------------------------------


def users() -> tuple[Submit, Submit]:
    """Two who submit; the first one trains. Root's daemon runs jobs as accounts of this machine."""
    names: list[str] = ["user-1", "user-2"]
    if os.geteuid() == 0:
        accounts = sorted(pwd.getpwall(), key=lambda one: not 1000 <= one.pw_uid < 60_000)
        others = [one for one in accounts if one.pw_uid != 0][:2]
        trainer = others[0].pw_name if can_train(others[0]) else ""
        names = [trainer, others[-1].pw_name]
    return by_token(names[0]), by_token(names[1])


def can_train(account: pwd.struct_passwd) -> bool:
    """Not if this Python is where only root can read it."""
    command = [sys.executable, str(HERE / "numpy_model.py"), "--help"]
    who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": ()}
    try:
        return (
            subprocess.run(command, cwd="/", capture_output=True, check=False, **who).returncode
            == 0
        )
    except OSError:
        return False


def by_token(user: str) -> Submit:
    """Whoever has no name is who runs the demo."""
    token = ""
    if user:
        with Client() as rota:
            token = rota.create_token(user=user).secret

    def submit(job: JobRequest) -> None:
        with Client(token=token) as rota:
            rota.submit(job)

    return submit


# -- the box --------------------------------------------------------------------------------------


@contextmanager
def folder() -> Generator[Path]:
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    home.chmod(0o711)
    os.environ["ROTA_HOME"] = str(home / "state")
    try:
        yield home
    finally:
        with undisturbed():
            shutil.rmtree(home)


@contextmanager
def daemon(home: Path) -> Generator[None]:
    rota = [sys.executable, "-m", "rota.cli.main"]
    (home / "state").mkdir(mode=0o700)
    (home / "state" / "config.toml").write_text(CONFIG)
    try:
        with undisturbed():
            # In a session of its own, where the terminal's Ctrl-C does not arrive.
            up = [*rota, "up", "--detach", "--virtual-gpus", GPUS]
            subprocess.run(up, check=True, start_new_session=True)
        yield
    finally:
        with undisturbed():
            # Whatever still runs is ended, and not only sent back to the queue.
            cancel_all()
            subprocess.run([*rota, "down", "--stop-jobs"], check=True, start_new_session=True)


def cancel_all() -> None:
    with Client() as rota:
        for job in rota.jobs().jobs:
            if job.state not in FINAL_STATES:
                with suppress(RotaError):
                    rota.cancel(job.id)


@contextmanager
def undisturbed() -> Generator[None]:
    """Ctrl-C takes effect when this is over."""
    received: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
