"""The rules for the newest generation of a live job, as pure functions of its workers' reports.

The scheduler orders a generation. The workers get it as a `Switch` when all its members are ready
and compatible with each other. It has formed when all of them report that they are in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota_trainer.reporting.messages import Member, Switch

NO_GENERATION = -1
"""The generation of a worker that has not been in any."""


@dataclass(frozen=True, slots=True)
class DesiredGeneration:
    """The newest generation that the scheduler ordered, with its workers by rank."""

    attempt: int
    generation: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberState:
    """The last report of a worker. A worker with an address is ready to join."""

    generation: int = NO_GENERATION
    address: str = ""
    identity: str = ""
    step: int = 0
    pause_s: float | None = None
    heard_at_s: float = 0.0
    advanced_at_s: float = -math.inf
    """When it last made progress: became ready, finished a step or entered a generation."""

    def has_advanced_since(self, before: MemberState) -> bool:
        return (self.step, self.generation, self.address) != (
            before.step,
            before.generation,
            before.address,
        )


MemberStates = Mapping[int, MemberState]
"""Worker number -> its last report."""


def refusals(wanted: DesiredGeneration, states: MemberStates) -> dict[int, str]:
    """Worker that may not join -> the reason. A new worker must have the identity of those that
    train. If none trains yet, all must be ready first, and the most common identity decides."""
    ready = {n: states[n] for n in wanted.numbers if n in states and states[n].address}
    trained = [each.identity for each in ready.values() if each.generation > NO_GENERATION]
    if not trained and len(ready) < len(wanted.numbers):
        return {}
    counted = Counter(trained or [each.identity for each in ready.values()])
    usual = next((identity for identity, _ in counted.most_common(1)), "")
    return {
        n: _difference(each.identity, usual)
        for n, each in ready.items()
        if each.generation == NO_GENERATION and each.identity != usual
    }


def _difference(own: str, usual: str) -> str:
    """The items that differ between two identities, which are comma-separated lists."""
    mine, theirs = own.split(", "), usual.split(", ")
    if len(mine) == len(theirs):
        mine, theirs = (
            [one for one, other in zip(each, against, strict=True) if one != other]
            for each, against in ((mine, theirs), (theirs, mine))
        )
    return f"it has {', '.join(mine)}; the others have {', '.join(theirs)}"


def switch_to(wanted: DesiredGeneration, states: MemberStates, *, is_broken: bool) -> Switch | None:
    """The order to switch; None until all members are ready and compatible."""
    is_complete = all(n in states and states[n].address for n in wanted.numbers)
    if not wanted.numbers or not is_complete or refusals(wanted, states):
        return None
    members = [Member(n, states[n].address) for n in wanted.numbers]
    return Switch(wanted.generation, members, is_broken)


def has_formed(wanted: DesiredGeneration, states: MemberStates, *, finished: Iterable[int]) -> bool:
    """Whether all members are in the generation; members that finished are not counted."""
    left = set(wanted.numbers).difference(finished)
    return bool(left) and all(
        n in states and states[n].generation == wanted.generation for n in left
    )


def pause_s(
    wanted: DesiredGeneration, states: MemberStates, *, before: Iterable[int]
) -> float | None:
    """The longest interruption of the members that trained `before`; None if not reported."""
    staying = set(wanted.numbers).intersection(before, states)
    pauses = [states[n].pause_s for n in staying if states[n].generation == wanted.generation]
    return max((each for each in pauses if each is not None), default=None)


def newest(states: MemberStates) -> int:
    """The newest generation that any worker has been in."""
    return max((each.generation for each in states.values()), default=NO_GENERATION)


def silent(states: MemberStates, *, now: float, heartbeat_s: float) -> frozenset[int]:
    """Workers that block the others: without a report for longer than `heartbeat_s`, while the
    others report but make no progress. If no worker reports, the connection is broken, and no
    worker is blamed."""
    quiet = frozenset(n for n, each in states.items() if now - each.heard_at_s > heartbeat_s)
    has_trained = newest(states) > NO_GENERATION
    others = [
        each
        for n, each in states.items()
        if n not in quiet and (each.generation > NO_GENERATION or not has_trained)
    ]
    is_stuck = all(now - each.advanced_at_s > heartbeat_s for each in others)
    return quiet if others and is_stuck else frozenset()
