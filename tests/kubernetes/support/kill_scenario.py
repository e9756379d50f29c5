"""Kill the daemon at random moments while jobs are submitted and end on a cluster.

As on one machine, every job takes its own lock and a lock of its GPU. The test also reads the
allocations from the API server.
"""

from __future__ import annotations

import threading
import time

from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess
from tests.support.daemon_process import wait_until
from tests.support.kill_scenario import SCRIPT, KillScenario

LONGEST_S = 4.0
"""The longest time from a start to the next kill: enough for pods to start, run and end."""


class ClusterKillScenario(KillScenario):
    """Submits, disturbances and checks are those of the scenario on one machine."""

    script = SCRIPT.replace("$CUDA_VISIBLE_DEVICES", "$NVIDIA_VISIBLE_DEVICES")

    def __init__(self, kube_daemon: KubernetesDaemonProcess, seed: int, *, rounds: int) -> None:
        super().__init__(kube_daemon, seed)
        self.kube_daemon, self._rounds = kube_daemon, rounds
        self._overbooked: list[str] = []

    def run(self) -> None:
        self.daemon.up()
        for number in range(self._rounds):
            submits = threading.Thread(target=self._submit, args=(number,))
            submits.start()
            # This sleep waits for no condition: it makes the random moment.
            time.sleep(self.random.uniform(0, LONGEST_S))
            self._random_request()
            self._overbooked += self.kube_daemon.overbooked()
            self.daemon.kill()
            self._overbooked += self.kube_daemon.overbooked()
            self._begin_anew(number)
            submits.join()
        wait_until(self._all_ended, "all jobs to end")

    def _begin_anew(self, number: int) -> None:
        """Sometimes with an empty disk, so that only the cluster knows the jobs; sometimes only
        after the lease has expired."""
        if number % 2:
            self.kube_daemon.lose_disk()
        if number % 5 != 1:
            self.kube_daemon.give_up_lease()
        self.daemon.up()

    def complaints(self) -> list[str]:
        return [*self._lost(), *self._twice(), *self._overbooked, *self._held()]

    def _held(self) -> list[str]:
        wait_until(self.kube_daemon.has_room, "all GPUs to be free")
        return [f"process {pid} is left" for pid in self.daemon.left()]
