"""What is to become of a live job's newest generation, from what its workers said.

Pure: whoever asks says what was heard, and when. A generation is ordered by the scheduler. It is
given to the workers as a `Switch` once all its members are ready and fit to each other; it has come
about once all of them say that they are in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota_trainer.messages import Member, Switch

NOBODY = -1
"""The generation of a worker that was in none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The newest generation that the scheduler ordered: its workers, by rank."""

    attempt: int
    generation: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """What a worker said last. It is ready to join from the moment it has an address."""

    generation: int = NOBODY
    address: str = ""
    identity: str = ""
    step: int = 0
    pause_s: float | None = None
    heard_at_s: float = 0.0
    moved_at_s: float = -math.inf
    """When it last got on: it became ready, finished a step or entered a generation."""

    def got_on_since(self, before: Said) -> bool:
        return (self.step, self.generation, self.address) != (
            before.step,
            before.generation,
            before.address,
        )


Heard = Mapping[int, Said]
"""Worker number -> what it said last."""


def refusals(wanted: Wanted, said: Heard) -> dict[int, str]:
    """Who may not join, and why: whoever is not like those who train. Where nobody does yet, all
    have to be there before it can be told who is the odd one out."""
    ready = {n: said[n] for n in wanted.numbers if n in said and said[n].address}
    trained = [each.identity for each in ready.values() if each.generation > NOBODY]
    if not trained and len(ready) < len(wanted.numbers):
        return {}
    counted = Counter(trained or [each.identity for each in ready.values()])
    usual = next((identity for identity, _ in counted.most_common(1)), "")
    return {
        n: _difference(each.identity, usual)
        for n, each in ready.items()
        if each.generation == NOBODY and each.identity != usual
    }


def _difference(own: str, usual: str) -> str:
    """Of two lists in words, what is not the same in both."""
    mine, theirs = own.split(", "), usual.split(", ")
    if len(mine) == len(theirs):
        mine, theirs = (
            [one for one, other in zip(each, against, strict=True) if one != other]
            for each, against in ((mine, theirs), (theirs, mine))
        )
    return f"it has {', '.join(mine)}; the others have {', '.join(theirs)}"


def switch_to(wanted: Wanted, said: Heard, *, is_broken: bool) -> Switch | None:
    """None until all members can come, and fit."""
    is_complete = all(n in said and said[n].address for n in wanted.numbers)
    if not wanted.numbers or not is_complete or refusals(wanted, said):
        return None
    members = [Member(n, said[n].address) for n in wanted.numbers]
    return Switch(wanted.generation, members, is_broken)


def has_come_about(wanted: Wanted, said: Heard, *, finished: Iterable[int]) -> bool:
    """Whether all members are in it, or were and have finished."""
    left = set(wanted.numbers).difference(finished)
    return bool(left) and all(n in said and said[n].generation == wanted.generation for n in left)


def pause_s(wanted: Wanted, said: Heard, *, before: Iterable[int]) -> float | None:
    """How long those who trained `before` stood still for it, if they say."""
    staying = set(wanted.numbers).intersection(before, said)
    pauses = [said[n].pause_s for n in staying if said[n].generation == wanted.generation]
    return max((each for each in pauses if each is not None), default=None)


def newest(said: Heard) -> int:
    """The newest generation that anybody was in."""
    return max((each.generation for each in said.values()), default=NOBODY)


def silent(said: Heard, *, now: float, heartbeat_s: float) -> frozenset[int]:
    """Workers that hold up the others: not heard of for longer than `heartbeat_s`, while those who
    are make no step. If nobody is heard of, the way to them is broken, and nobody is to blame."""
    quiet = frozenset(n for n, each in said.items() if now - each.heard_at_s > heartbeat_s)
    has_trained = newest(said) > NOBODY
    others = [
        each
        for n, each in said.items()
        if n not in quiet and (each.generation > NOBODY or not has_trained)
    ]
    is_stuck = all(now - each.moved_at_s > heartbeat_s for each in others)
    return quiet if others and is_stuck else frozenset()
