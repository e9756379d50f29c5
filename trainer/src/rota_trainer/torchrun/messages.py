"""What the agents of torchrun and the daemon say to each other: who is there, which generation they
form, and the keys and values that they share in it.

All three are `POST` with the token of the job's attempt, and long polls: the daemon holds its
answer until there is something to say or `wait_s` have passed. A *turn* is one meeting of all
members of a generation; there is more than one only where an agent restarts its processes alone.
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
"""Of the values that are asked for at once."""

WAITING, MET, LEFT, OVER = "waiting", "met", "left", "over"
"""What becomes of an arrival: not all are there yet; all are; this worker is not of the newest
generation, which has met without it; a member has finished already, so that all will never meet."""
RUNNING, FAILED, FINISHED = "running", "failed", "finished"
"""How the processes of an agent are."""
DONE, ABSENT, MOVED, BROKEN = "done", "absent", "moved", "broken"
"""What becomes of a request to the store: done; a key is not there yet; the store is another than
the one that was meant, because the daemon was started again; the turn is over before it began."""


@dataclass(frozen=True)
class Arrival:
    """An agent is at the barrier. `generation` and `turn` are where it was before; `host` and
    `port` are where its first process would wait for the others, if it gets rank 0."""

    worker: int
    generation: int = -1
    turn: int = 0
    host: str = ""
    port: int = 0
    wait_s: float = 0.0


@dataclass(frozen=True)
class Seat:
    """The place of an agent in a turn that has met."""

    state: str
    generation: int = -1
    turn: int = 0
    rank: int = 0
    size: int = 0
    host: str = ""
    port: int = 0


@dataclass(frozen=True)
class Watching:
    """An agent asks whether it has to come to the barrier again. `start_s` is how long it took
    from the end of the meeting until its processes ran."""

    worker: int
    generation: int
    turn: int
    state: str = RUNNING
    start_s: float | None = None
    wait_s: float = 0.0


@dataclass(frozen=True)
class News:
    """`is_called`: to the barrier, for `generation`."""

    is_called: bool = False
    generation: int = -1


@dataclass(frozen=True)
class Exchange:
    """A request to the store of a turn: `set`, `get`, `add`, `compare_set`, `wait`, `check`,
    `delete` or `count`. Values are in base64. One that changes something has a `sequence` of its
    agent, and counts once however often it is sent. `store` names the one that it is meant for."""

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
class Found:
    """`number` is a sum, a count, or 1 for yes."""

    state: str
    store: str = ""
    values: list[str] = field(default_factory=list)
    number: int = 0
