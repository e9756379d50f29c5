"""Watches the daemon in a background thread: whether the agent must join the barrier again."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from rota_trainer.reporting.environment import WorkerEnvironment
from rota_trainer.reporting.http import RESPONSE_MARGIN_S, DaemonConnection, DaemonRequestError
from rota_trainer.reporting.messages import to_json
from rota_trainer.torchrun.messages import (
    FAILED,
    FINISHED,
    LONGEST_WAIT_S,
    RUNNING,
    WATCH,
    RendezvousAssignment,
    WatchRequest,
)

RETRY_S = 0.2
RETRY_MAX_S = 2.0
"""The longest time between two attempts to reach the daemon. Training continues meanwhile."""
CLOSE_TIMEOUT_S = 2.0


class MembershipWatch:
    def __init__(self, environment: WorkerEnvironment) -> None:
        self._environment = environment
        self._connection = DaemonConnection(environment.url, environment.token)
        self._request_connection = DaemonConnection(environment.url, environment.token)
        """For requests that must not wait for the thread's long poll."""
        self._changed = threading.Condition()
        self._assignment: RendezvousAssignment | None = None
        self._start_s: float | None = None
        self._must_rejoin = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def must_rejoin(self) -> bool:
        return self._must_rejoin

    def follow(self, assignment: RendezvousAssignment, *, start_s: float) -> None:
        """Watch for a change after this assignment. `start_s`, the time until its processes ran, is
        taken from the first call."""
        if assignment is self._assignment:
            return
        with self._changed:
            self._assignment, self._start_s, self._must_rejoin = assignment, start_s, False
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rota-watch", daemon=True)
            self._thread.start()

    def pause(self) -> None:
        """Stop watching while the agent is at the barrier."""
        with self._changed:
            self._assignment, self._must_rejoin = None, False

    def report_failure(
        self, assignment: RendezvousAssignment, *, wait_s: float, patience_s: float
    ) -> bool:
        """Report that processes failed; returns whether the daemon calls the agent to the barrier
        within `wait_s`. An unreachable daemon is retried for `patience_s`."""
        until = time.monotonic() + patience_s
        while not self._must_rejoin:
            try:
                self._must_rejoin = self._request_watch(
                    self._request_connection, assignment, state=FAILED, wait_s=wait_s
                )
            except DaemonRequestError as error:
                if error.is_final or error.is_refusal or time.monotonic() > until:
                    return False
                time.sleep(RETRY_S)
                continue
            break
        return self._must_rejoin

    def finish(self, assignment: RendezvousAssignment) -> None:
        """Report that the processes have finished: the agent will not join again."""
        self.pause()
        with suppress(DaemonRequestError):
            self._request_watch(self._request_connection, assignment, state=FINISHED, wait_s=0.0)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._connection.interrupt()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        self._request_connection.close()

    def _run(self) -> None:
        pause_s = RETRY_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._is_watching())
                assignment = self._assignment
            if self._is_closed or assignment is None:
                break
            try:
                must_rejoin = self._request_watch(
                    self._connection, assignment, state=RUNNING, wait_s=LONGEST_WAIT_S
                )
            except DaemonRequestError as error:
                if error.is_final:
                    break
                time.sleep(pause_s)
                pause_s = min(RETRY_MAX_S, 2 * pause_s)
                continue
            pause_s = RETRY_S
            with self._changed:
                if self._assignment is assignment:
                    self._must_rejoin = self._must_rejoin or must_rejoin
        self._connection.close()

    def _is_watching(self) -> bool:
        return self._assignment is not None and not self._must_rejoin

    def _request_watch(
        self,
        connection: DaemonConnection,
        assignment: RendezvousAssignment,
        *,
        state: str,
        wait_s: float,
    ) -> bool:
        request = WatchRequest(
            self._environment.worker,
            assignment.generation,
            assignment.turn,
            state,
            self._start_s,
            min(wait_s, LONGEST_WAIT_S),
        )
        answer = connection.post(
            WATCH, to_json(request), timeout_s=request.wait_s + RESPONSE_MARGIN_S
        )
        return answer.get("is_called") is True
