"""A day of kills on a cluster: the daemon is killed at random moments while jobs come and go.

As on one machine, every job takes a lock of its own and one of its card. Meanwhile the API server
is asked what it has given away.
"""

from __future__ import annotations

import threading
import time

from tests.e2e.house import wait_until
from tests.e2e.kills import SCRIPT, Day
from tests.kubernetes.outpost import Outpost

LONGEST_S = 4.0
"""From a start to the next kill: long enough for pods to be born, to run and to end in."""


class ClusterDay(Day):
    """The submits, the meddling and the complaints are those of any other day."""

    script = SCRIPT.replace("$CUDA_VISIBLE_DEVICES", "$NVIDIA_VISIBLE_DEVICES")

    def __init__(self, outpost: Outpost, seed: int, *, rounds: int) -> None:
        super().__init__(outpost, seed)
        self.outpost, self._rounds = outpost, rounds
        self._overbooked: list[str] = []

    def run(self) -> None:
        self.house.up()
        for number in range(self._rounds):
            submits = threading.Thread(target=self._submit, args=(number,))
            submits.start()
            # Not to wait for anything: this is the random moment.
            time.sleep(self.random.uniform(0, LONGEST_S))
            self._meddle()
            self._overbooked += self.outpost.overbooked()
            self.house.kill()
            self._overbooked += self.outpost.overbooked()
            self._begin_anew(number)
            submits.join()
        wait_until(self._all_ended, "all jobs to end")

    def _begin_anew(self, number: int) -> None:
        """Now and then somewhere else, with nothing but what the cluster knows; now and then only
        when the lease is stale."""
        if number % 2:
            self.outpost.lose_disk()
        if number % 5 != 1:
            self.outpost.give_up_lease()
        self.house.up()

    def complaints(self) -> list[str]:
        return [*self._lost(), *self._twice(), *self._overbooked, *self._held()]

    def _held(self) -> list[str]:
        wait_until(self.outpost.has_room, "all GPUs to be free")
        return [f"process {pid} is left" for pid in self.house.left()]
