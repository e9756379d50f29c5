"""One GPU belongs to one daemon, whatever user runs it."""

import os
import pwd
import subprocess
import sys

import pytest

from rota.core.model.units import GIB
from rota.engines.interface import GpuReading
from rota.engines.local.gpu_locks import LockedGpus, selected
from rota.engines.local.gpus import VirtualGpus
from rota.errors import UnavailableError, UserError
from tests.unit.engines.local.test_gpu_registry import ListedGpus

HOLD = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
lock = socket.socket(socket.AF_UNIX)
lock.bind("\\0rota/gpu/" + sys.argv[1])
lock.listen(1)
print("locked", flush=True)
sys.stdin.read()
"""


def problems(gpus: LockedGpus) -> list[str]:
    return [each.problem for each in gpus.read()]


def test_a_gpu_is_locked_until_it_is_released() -> None:
    uuid = f"GPU-{os.getpid()}"
    first, second = LockedGpus(ListedGpus([uuid])), LockedGpus(ListedGpus([uuid]))
    first.claim()
    with pytest.raises(UnavailableError, match=rf"process {os.getpid()} of user"):
        second.claim()
    assert "managed by another daemon" in problems(second)[0]
    assert problems(first) == [""]
    first.release()
    second.claim()
    assert problems(second) == [""]
    second.release()


def test_a_refused_claim_keeps_no_lock() -> None:
    free, taken = f"GPU-{os.getpid()}-free", f"GPU-{os.getpid()}-taken"
    holder = LockedGpus(ListedGpus([taken]))
    holder.claim()
    with pytest.raises(UnavailableError):
        LockedGpus(ListedGpus([free, taken])).claim()
    other = LockedGpus(ListedGpus([free]))
    other.claim()
    other.release()
    holder.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_the_error_names_the_other_user() -> None:
    user = next(each for each in pwd.getpwall() if each.pw_uid != 0)
    uuid = f"GPU-{os.getpid()}-user"
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", HOLD, uuid, str(user.pw_uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(UnavailableError, match=f"process {process.pid} of user {user.pw_name}"):
            LockedGpus(ListedGpus([uuid])).claim()
        assert process.stdin is not None
        process.stdin.close()


def test_virtual_gpus_have_no_locks() -> None:
    first, second = LockedGpus(VirtualGpus(1, GIB)), LockedGpus(VirtualGpus(1, GIB))
    first.claim()
    second.claim()


def test_selection() -> None:
    gpus = ListedGpus(["GPU-a", "GPU-b", "GPU-c", "GPU-d"])

    def indices(*words: str) -> list[int]:
        return [each.index for each in selected(gpus, words).read()]

    assert indices() == [0, 1, 2, 3]
    assert indices("0", "2-3") == [0, 2, 3]
    assert indices("GPU-b") == [1]
    assert indices("7") == []
    for wrong in ("x", "-1", "1-", "0 1"):
        with pytest.raises(UserError, match="names no GPU"):
            indices(wrong)
    assert selected(gpus, ["1"]).read() == (GpuReading(1, "GPU-b", "A100", GIB),)
