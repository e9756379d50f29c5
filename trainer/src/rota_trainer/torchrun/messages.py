"""The messages between torchrun's agents and the daemon: barrier, watch, and key-value store.

All three requests are `POST` with the token of the job's attempt, and long polls: the daemon holds
its response until there is news or `wait_s` have passed. A *turn* (the wire name of a rendezvous
round) is one meeting of all members of a generation; a generation has more than one only if an
agent restarts its processes without a change of members. Names and values are the wire format.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ARRIVE = "/v1/training/rendezvous/arrive"
WATCH = "/v1/training/rendezvous/watch"
STORE = "/v1/training/rendezvous/store"

LONGEST_WAIT_S = 30.0
LONGEST_KEY = 1024
LARGEST_VALUE = 1 << 20
MOST_KEYS_AT_ONCE = 4096
LARGEST_ANSWER = 4 << 20
"""The limit for all values of one response."""

WAITING, MET, LEFT, OVER = "waiting", "met", "left", "over"
"""The results of an arrival: some members have not arrived; all have; the newest generation has met
without this worker; a member has finished, so that the members cannot all meet any more."""
RUNNING, FAILED, FINISHED = "running", "failed", "finished"
"""The states of an agent's processes."""
DONE, ABSENT, MOVED, BROKEN = "done", "absent", "moved", "broken"
"""The results of a store request: done; a key does not exist yet; the store is a new one because
the daemon was restarted; the round has ended because its members change."""


@dataclass(frozen=True)
class ArriveRequest:
    """An agent arrives at the barrier. `generation` and `turn` are its previous round; `host` and
    `port` become the master address if the agent gets rank 0."""

    worker: int
    generation: int = -1
    turn: int = 0
    host: str = ""
    port: int = 0
    wait_s: float = 0.0


@dataclass(frozen=True)
class RendezvousAssignment:
    """The rank of an agent in a round that has met, and the master address."""

    state: str
    generation: int = -1
    turn: int = 0
    rank: int = 0
    size: int = 0
    host: str = ""
    port: int = 0


@dataclass(frozen=True)
class WatchRequest:
    """An agent asks whether it must join the barrier again. `start_s` is the time from the meeting
    until its processes ran."""

    worker: int
    generation: int
    turn: int
    state: str = RUNNING
    start_s: float | None = None
    wait_s: float = 0.0


@dataclass(frozen=True)
class WatchResponse:
    """`is_called`: the agent must join the barrier of `generation`."""

    is_called: bool = False
    generation: int = -1


@dataclass(frozen=True)
class StoreRequest:
    """A request to the store of a round. `deed` is the operation: `set`, `get`, `add`,
    `compare_set`, `wait`, `check`, `delete` or `count`. Values are base64. A change has a
    `sequence` number of its agent, so that a repeated request is applied once. `store` is the name
    of the store that the agent used before; empty for the first request."""

    worker: int
    generation: int
    turn: int
    deed: str
    keys: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    amount: int = 0
    sequence: int = 0
    store: str = ""
    wait_s: float = 0.0


@dataclass(frozen=True)
class StoreResponse:
    """`number` is a sum, a count, or 1 for true."""

    state: str
    store: str = ""
    values: list[str] = field(default_factory=list)
    number: int = 0
