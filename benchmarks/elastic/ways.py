"""The compared methods to change the size of a training job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec

from benchmarks.support.sandbox import has_commands

TORCHRUN = "exec $PYTHON -m torch.distributed.run --local-addr 127.0.0.1"
PLAIN = "$SCRIPTS/train_ddp.py"
ETCD_FLAGS = (
    "--rdzv-endpoint $ETCD --rdzv-id $ROTA_JOB --nnodes 1:2 --rdzv-conf last_call_timeout=5"
)
MILLION = 500
"""The width of four square layers that have so many parameters."""


@dataclass(frozen=True, slots=True)
class Way:
    """One method. `command` is for a shell. `shrinks` says that shrinking is measured, too."""

    name: str
    mode: str
    command: str
    width: int = MILLION
    rounds: int = 2
    shrinks: bool = True
    wants_etcd: bool = False
    available: Callable[[], bool] = lambda: True
    needs: str = ""


def _has_backend() -> bool:
    return "rota" in entry_points(group="torchrun.handlers").names


def _has_etcd() -> bool:
    return has_commands(["etcd"]) and find_spec("etcd") is not None


LIVE = Way("live", "live", "exec $PYTHON $SCRIPTS/train_live.py", rounds=3)
LARGE = Way("live, 25 million", "live", LIVE.command, width=5 * MILLION)
AGENTS = Way(
    "torchrun, rota",
    "torchrun",
    f"{TORCHRUN} --rdzv-backend rota --max-restarts 0 {PLAIN}",
    available=_has_backend,
    needs="rota-trainer to be installed",
)
ETCD = Way(
    "torchrun, etcd",
    "torchrun",
    f"{TORCHRUN} --rdzv-backend etcd {ETCD_FLAGS} {PLAIN}",
    rounds=1,
    shrinks=False,
    wants_etcd=True,
    available=_has_etcd,
    needs="etcd 3.4 and python-etcd",
)
ETCD_V2 = Way(
    "torchrun, etcd-v2",
    "torchrun",
    f"{TORCHRUN} --rdzv-backend etcd-v2 {ETCD_FLAGS} {PLAIN}",
    rounds=1,
    shrinks=False,
    wants_etcd=True,
    available=_has_etcd,
    needs=ETCD.needs,
)
C10D = Way(
    "torchrun, c10d",
    "restart",
    f"{TORCHRUN} --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT"
    f" --rdzv-id $ROTA_JOB --nnodes $WORLD_SIZE {PLAIN}",
    rounds=1,
)
RESTART = Way("stop and restart", "restart", "exec $PYTHON $SCRIPTS/train_restart.py", rounds=1)
WAYS: Sequence[Way] = (LIVE, AGENTS, ETCD, RESTART, C10D, LARGE, ETCD_V2)
