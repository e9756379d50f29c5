"""The rendezvous handler of torchrun: agents meet at the daemon, which knows the members.

Because the scheduler decides the members of each generation, there is no waiting for further agents
and no `--nnodes`. The rank and the master address of an agent come from the daemon.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.utils.distributed import get_free_port

from rota_trainer.console import print_message
from rota_trainer.reporting.environment import WorkerEnvironment, read_environment
from rota_trainer.reporting.http import RESPONSE_MARGIN_S, DaemonConnection, DaemonRequestError
from rota_trainer.reporting.messages import to_json
from rota_trainer.torchrun.entry_point import BACKEND
from rota_trainer.torchrun.member_watch import MembershipWatch
from rota_trainer.torchrun.messages import (
    ARRIVE,
    LEFT,
    LONGEST_WAIT_S,
    MET,
    OVER,
    ArriveRequest,
    RendezvousAssignment,
)
from rota_trainer.torchrun.store import RotaStore

RETRY_S = 0.2
"""The time between two attempts to reach the daemon."""
LOOPBACK = "127.0.0.1"


class RendezvousOptions(NamedTuple):
    """The options of `--rdzv-conf`, and the identity of this worker."""

    run_id: str
    host: str
    environment: WorkerEnvironment
    join_timeout_s: float = 600.0
    """How long to wait at the barrier for the other agents, and for the daemon."""
    failure_wait_s: float = 5.0
    """How long to wait, after processes failed, for the news that a change of members is the
    cause."""

    @classmethod
    def of(cls, parameters: RendezvousParameters) -> RendezvousOptions:
        environment = read_environment()
        if not environment.url:
            raise RendezvousConnectionError(
                "--rdzv-backend rota works only inside a rota job, but ROTA_URL, ROTA_TOKEN or "
                "ROTA_JOB is not set; use --standalone or --rdzv-backend c10d here"
            )
        return cls(
            parameters.run_id,
            parameters.local_addr or _own_host(environment.url),
            environment,
            _seconds(parameters, "join_timeout", default=cls._field_defaults["join_timeout_s"]),
            _seconds(parameters, "failure_wait", default=cls._field_defaults["failure_wait_s"]),
        )


class RotaRendezvous(RendezvousHandler):
    def __init__(self, options: RendezvousOptions) -> None:
        self._options = options
        self._connection = DaemonConnection(options.environment.url, options.environment.token)
        self._watch = MembershipWatch(options.environment)
        self._assignment = RendezvousAssignment("")
        self._store: RotaStore | None = None
        self._met_s = 0.0

    # -- interface of torch ---------------------------------------------------------------------

    def get_backend(self) -> str:
        return BACKEND

    def get_run_id(self) -> str:
        return self._options.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        self._watch.pause()
        is_first, arrived_s = self._assignment.generation < 0, time.time()
        self._assignment = assignment = self._arrive()
        self._met_s = time.monotonic()
        # The agent's processes inherit these variables and use them in their reports.
        os.environ["ROTA_GENERATION"] = str(assignment.generation)
        if not is_first:
            os.environ["ROTA_BEGAN"] = f"{arrived_s:.3f}"
        self._close_store()
        self._store = RotaStore(self._options.environment, assignment)
        master = RendezvousStoreInfo(assignment.host, assignment.port)
        return RendezvousInfo(self._store, assignment.rank, assignment.size, master)

    def num_nodes_waiting(self) -> int:
        """1 if the agent must join again. Known from the watch thread, because torch calls this
        several times a second."""
        return int(self._watch.must_rejoin)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Ignored: the scheduler decides whether the other agents continue."""

    def shutdown(self) -> bool:
        self._watch.close()
        self._connection.close()
        self._close_store()
        return True

    # -- interface of the wrapped agent ---------------------------------------------------------

    def check_result(self, result: RunResult) -> RunResult:
        """Correct the result of the agent's processes. If they failed because another agent is
        gone, the result is HEALTHY: the agent joins again without using up a restart."""
        if result.state == WorkerState.HEALTHY:
            self._watch.follow(self._assignment, start_s=time.monotonic() - self._met_s)
        elif result.state == WorkerState.SUCCEEDED:
            self._watch.finish(self._assignment)
        elif result.state == WorkerState.FAILED:
            must_rejoin = self._watch.report_failure(
                self._assignment,
                wait_s=self._options.failure_wait_s,
                patience_s=self._options.join_timeout_s,
            )
            if must_rejoin:
                print_message("processes failed because the members changed; restarting them")
                return RunResult(state=WorkerState.HEALTHY)
        return result

    # -- the barrier ----------------------------------------------------------------------------

    def _arrive(self) -> RendezvousAssignment:
        until = time.monotonic() + self._options.join_timeout_s
        while True:
            left_s = until - time.monotonic()
            try:
                assignment = self._request_assignment(min(LONGEST_WAIT_S, max(0.0, left_s)))
            except DaemonRequestError as error:
                if error.is_final or error.is_refusal or left_s <= 0:
                    raise RendezvousConnectionError(
                        f"rota rendezvous failed: {error.why}"
                    ) from None
                time.sleep(RETRY_S)
                continue
            if assignment.state == MET:
                return assignment
            if assignment.state == LEFT:
                self._leave(assignment)
            if assignment.state == OVER:
                raise RendezvousClosedError(
                    "a worker of this job has finished, so the members cannot meet again"
                )
            if left_s <= 0:
                raise RendezvousTimeoutError(
                    f"not all workers of this job arrived in {self._options.join_timeout_s:g} s; "
                    "`rota show` lists them; use --rdzv-conf join_timeout=SECONDS to wait longer"
                )

    def _request_assignment(self, wait_s: float) -> RendezvousAssignment:
        arrival = ArriveRequest(
            self._options.environment.worker,
            self._assignment.generation,
            self._assignment.turn,
            self._options.host,
            get_free_port(),
            wait_s,
        )
        answer = self._connection.post(
            ARRIVE, to_json(arrival), timeout_s=wait_s + RESPONSE_MARGIN_S
        )
        try:
            return RendezvousAssignment(**answer)
        except TypeError:
            raise DaemonRequestError(f"invalid rendezvous response: {answer}"[:200]) from None

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def _leave(self, assignment: RendezvousAssignment) -> NoReturn:
        # Not RendezvousGracefulExitError: torchrun fails after it.
        print_message(
            f"this worker was removed from the job (generation {assignment.generation});"
            " the other workers continue"
        )
        raise SystemExit(0)


def _own_host(url: str) -> str:
    """The address of this machine for the other agents: the local address of the route to the
    daemon."""
    parts = urlsplit(url)
    if parts.scheme == "unix" or not parts.hostname:
        return LOOPBACK
    family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Connecting a datagram socket sends nothing; it only looks up the route.
            probe.connect((parts.hostname, parts.port or 80))
            return str(probe.getsockname()[0])
    except OSError:
        return socket.getfqdn()


def _seconds(parameters: RendezvousParameters, name: str, *, default: Any) -> float:
    value = parameters.get(name, default)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds <= 1e9:
        raise ValueError(
            f"--rdzv-conf {name}={value} is not a number of seconds; example: {name}={default}"
        )
    return seconds
