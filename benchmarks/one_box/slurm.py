"""Slurm: munged, slurmctld and slurmd on this machine, without an accounting database.

The scheduler has its default settings. The configuration sets paths and the number of slots, and
avoids systemd and control groups.
"""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.one_box.peer import NOTHING, Amounts, spread
from benchmarks.support.sandbox import (
    Sandbox,
    answers,
    first_line,
    free_port,
    has_commands,
    sandbox,
    wait_until,
)

CONFIGURATION = """\
ClusterName=box
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MaxJobCount=100000
MaxArraySize=20000
SlurmdParameters=config_overrides
NodeName=box NodeAddr=127.0.0.1 NodeHostname=box CPUs={slots} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    name = "Slurm"
    needs = "Debian's `slurm-wlm` and `munge`"
    remark = (
        "Slurm is driven by `sbatch` and `squeue`, with the scheduler's settings it comes with."
        " Its batches are job arrays, each one record in the queue however long it is, and so is"
        " its row of no-ops. The state is saved in the background, seconds after the answer."
    )
    is_durable = False
    amounts = Amounts(n_noops=200)

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._port = 0
        self._munged: subprocess.Popen[bytes] | None = None
        self._controller: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        return first_line("slurmctld", "-V").split()[-1]

    def available(self) -> bool:
        return has_commands(["munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo"])

    @contextmanager
    def running(self, slots: int) -> Iterator[None]:
        with sandbox("slurm") as self._sandbox:
            self._configure(self._sandbox.folder, max(slots, 1))
            self._munged = self._start_munged(self._sandbox)
            self._controller = self._start_controller(self._sandbox)
            if slots:
                self._start_node(self._sandbox)
            yield

    def submit_one(self, argv: Sequence[str]) -> None:
        self._run("sbatch", "-Q", "--wrap", shlex.join(argv))

    def submit_singles(self, n: int, n_clients: int) -> None:
        spread(lambda: self.submit_one(NOTHING), n, n_clients=n_clients)

    def submit_many(self, n: int) -> None:
        self._run("sbatch", "-Q", f"--array=1-{n}", "--wrap", shlex.join(NOTHING))

    def run_noops(self, n: int) -> None:
        self.submit_many(n)
        wait_until(
            lambda: self._n_known() == 0, what="end of all jobs", every_s=0.05, within_s=600.0
        )

    def list_once(self) -> None:
        self._run("squeue")

    def survivors(self, n: int) -> int:
        assert self._sandbox is not None
        assert self._controller is not None
        before = self._n_known()
        self.submit_singles(n, 1)
        self._sandbox.kill(self._controller)
        self._controller = self._start_controller(self._sandbox)
        return self._n_known() - before

    def server_pids(self) -> Sequence[int]:
        daemons = (self._munged, self._controller)
        return [daemon.pid for daemon in daemons if daemon is not None]

    def _configure(self, folder: Path, slots: int) -> None:
        assert self._sandbox is not None
        self._port = free_port()
        # munged refuses a socket in a folder that other users cannot read.
        folder.chmod(0o711)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        configuration = CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            port=self._port,
            node_port=free_port(),
            user=pwd.getpwuid(os.getuid()).pw_name,
            folder=folder,
            slots=slots,
        )
        (folder / "slurm.conf").write_text(configuration)
        self._sandbox.environment["SLURM_CONF"] = str(folder / "slurm.conf")

    def _start_munged(self, place: Sandbox) -> subprocess.Popen[bytes]:
        folder = place.folder
        return place.daemon(
            "munged",
            "--foreground",
            f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/munge.seed",
            is_ready=(folder / "munge.socket").exists,
        )

    def _start_controller(self, place: Sandbox) -> subprocess.Popen[bytes]:
        return place.daemon("slurmctld", "-D", is_ready=lambda: answers(self._port))

    def _start_node(self, place: Sandbox) -> subprocess.Popen[bytes]:
        def is_idle() -> bool:
            return place.run("sinfo", "-h", "-o", "%T").strip() == "idle"

        return place.daemon("slurmd", "-D", "-N", "box", is_ready=is_idle)

    def _n_known(self) -> int:
        return len(self._run("squeue", "-h", "-r").splitlines())

    def _run(self, *argv: str) -> str:
        assert self._sandbox is not None, f"not running: {shlex.join(argv)}"
        return self._sandbox.run(*argv)
