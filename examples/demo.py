"""Shows a queue on virtual GPUs: two users, jobs that train, and one urgent job.

Everything runs in a temporary folder, which is removed at the end, also after Ctrl-C.
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
CONFIG = """
min_runtime = "1s"
restart_cost = "0s"
policy = "fifo"
max_priority = 10  # Without this, only an administrator could submit the urgent job.
"""
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
    say("takes at most two minutes; Ctrl-C stops it")
    with folder() as home, daemon(home):
        first, second = users()
        for job in with_torch() if has_torch else with_numpy():
            first(job)
        second(work("sweep", gpus="1", seconds=1, array="3"))
        second(work("tune", gpus="0.5", seconds=2))
        urgent = work(URGENT, gpus="3", seconds=URGENT_S, priority=10)
        stops = watch(lambda: second(urgent), until_s=began_s + LONGEST_S)
        summary(stops)
    say("\nThe daemon is stopped, its folder removed. Next: 'rota up --detach', 'rota submit'.")
    return 0


# -- jobs -----------------------------------------------------------------------------------------


def with_torch() -> list[JobRequest]:
    """Jobs with torch. `resnet` has two workers, which agree on the step to stop after."""
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
    """A job that only occupies GPUs."""
    command = ["sleep", str(seconds)]
    return JobRequest(command, name=name, gpus=gpus, priority=priority, array=array, workdir="/")


# -- users ----------------------------------------------------------------------------------------


def users() -> tuple[Submit, Submit]:
    """Two users; the first one trains. A daemon of root runs jobs as accounts of this machine."""
    names: list[str] = ["user-1", "user-2"]
    if os.geteuid() == 0:
        accounts = sorted(pwd.getpwall(), key=lambda one: not 1000 <= one.pw_uid < 60_000)
        others = [one for one in accounts if one.pw_uid != 0][:2]
        trainer = others[0].pw_name if can_train(others[0]) else ""
        names = [trainer, others[-1].pw_name]
    return by_token(names[0]), by_token(names[1])


def can_train(account: pwd.struct_passwd) -> bool:
    """Whether the account can use this Python, which may be readable for root only."""
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
    """Submit as a user. The empty name is the user who runs the demo."""
    token = ""
    if user:
        with Client() as rota:
            token = rota.create_token(user=user).secret

    def submit(job: JobRequest) -> None:
        with Client(token=token) as rota:
            rota.submit(job)

    return submit


# -- daemon ---------------------------------------------------------------------------------------


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
        with interrupts_delayed():
            shutil.rmtree(home)


@contextmanager
def daemon(home: Path) -> Generator[None]:
    rota = [sys.executable, "-m", "rota.cli.main"]
    (home / "state").mkdir(mode=0o700)
    (home / "state" / "config.toml").write_text(CONFIG)
    try:
        with interrupts_delayed():
            # A new session does not receive the terminal's Ctrl-C.
            up = [*rota, "up", "--detach", "--virtual-gpus", GPUS]
            subprocess.run(up, check=True, start_new_session=True)
        yield
    finally:
        with interrupts_delayed():
            # Cancel running jobs; `down` would return them to the queue.
            cancel_all()
            subprocess.run([*rota, "down", "--stop-jobs"], check=True, start_new_session=True)


def cancel_all() -> None:
    with Client() as rota:
        for job in rota.jobs().jobs:
            if job.state not in FINAL_STATES:
                with suppress(RotaError):
                    rota.cancel(job.id)


@contextmanager
def interrupts_delayed() -> Generator[None]:
    """Delay Ctrl-C until the end of the block."""
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
