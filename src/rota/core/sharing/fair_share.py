"""Fair shares: divides GPUs of one type among projects.

First each project gets its quota, as far as it wants it; if the quotas together exceed the GPUs,
each quota is reduced in proportion. The GPUs that are left go to the projects that want more, in
proportion to their weights. Whole GPUs are given; the last GPUs go to the largest remainders.

The arithmetic is exact, so that equal remainders are equal and the result does not depend on the
order of the projects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Claim:
    """What a project may have and wants of the GPUs of one type."""

    name: str
    wants: float
    quota: float = 0.0
    """Guaranteed GPUs."""
    weight: float | None = None
    """Share of what the quotas leave. None: the quota, or 1 if no project of the division has a
    quota. A project of weight 0 gets what no other project wants."""
    limit: float | None = None
    priority: int = 0
    """Projects of a higher priority are satisfied first with what the quotas leave."""
    created_s: float = 0.0


class _Part:
    """The part of one project while it is computed."""

    def __init__(self, claim: Claim, weight: Fraction) -> None:
        self.claim = claim
        self.weight = weight
        most = math.inf if claim.limit is None else claim.limit
        self.demand = Fraction(max(0.0, min(claim.wants, most)))
        self.granted = Fraction(0)
        self.remainder = Fraction(0)

    @property
    def missing(self) -> Fraction:
        return self.demand - self.granted

    @property
    def turn(self) -> tuple[Fraction, float, str]:
        """The order in which single GPUs are given: largest remainder, older project, name."""
        return -self.remainder, self.claim.created_s, self.claim.name


def fair_shares(n_gpus: float, claims: Iterable[Claim]) -> dict[str, float]:
    """The number of GPUs that each project deserves."""
    ordered = list(claims)
    parts = _parts(ordered)
    left = Fraction(n_gpus) - _grant_quotas(Fraction(n_gpus), parts)
    weighted = [part for part in parts if part.weight > 0]
    # Projects of weight 0 share equally what all others leave.
    unweighted = [part for part in parts if part.weight == 0]
    for part in unweighted:
        part.weight = Fraction(1)
    for group in (weighted, unweighted):
        for priority in sorted({part.claim.priority for part in group}, reverse=True):
            level = [part for part in group if part.claim.priority == priority]
            left -= _grant_by_weight(left, level)
    shares = {part.claim.name: float(part.granted) for part in parts}
    return {claim.name: shares[claim.name] for claim in ordered}


def _parts(claims: Sequence[Claim]) -> list[_Part]:
    default = 0.0 if any(claim.quota for claim in claims) else 1.0
    parts: list[_Part] = []
    for claim in claims:
        weight = (claim.quota or default) if claim.weight is None else claim.weight
        parts.append(_Part(claim, Fraction(weight)))
    return parts


def _grant_quotas(n_gpus: Fraction, parts: Sequence[_Part]) -> Fraction:
    """Grant each part its quota, or a proportional part of it. Returns the GPUs granted."""
    wanted = {id(part): min(Fraction(part.claim.quota), part.demand) for part in parts}
    total = sum(wanted.values())
    if total <= n_gpus:
        for part in parts:
            part.granted = wanted[id(part)]
        return Fraction(total)
    left = n_gpus
    for part in parts:
        exact = wanted[id(part)] * n_gpus / total
        part.granted = Fraction(math.floor(exact))
        part.remainder = exact - part.granted
        left -= part.granted
    return n_gpus - left + _grant_single_gpus(left, parts)


def _grant_by_weight(left: Fraction, parts: Sequence[_Part]) -> Fraction:
    """Grant what is left by weight. Returns the GPUs granted."""
    before = left
    while left > 0:
        unsatisfied = [part for part in parts if part.missing > 0]
        total = sum(part.weight for part in unsatisfied)
        to_give = left
        is_complete = True
        for part in unsatisfied:
            share = to_give * part.weight / total
            if part.missing < share:
                is_complete = False  # It leaves something: another round.
            granted = part.missing if part.missing <= share else Fraction(math.floor(share))
            part.remainder = share - granted
            part.granted += granted
            left -= granted
        if is_complete:
            break
    return before - left + _grant_single_gpus(left, parts)


def _grant_single_gpus(left: Fraction, parts: Sequence[_Part]) -> Fraction:
    """Grant single GPUs, one to each part in its turn. Returns the GPUs granted."""
    before = left
    for part in sorted(parts, key=lambda part: part.turn):
        granted = min(left, part.missing, Fraction(1))
        if granted > 0:
            part.granted += granted
            left -= granted
    return before - left
