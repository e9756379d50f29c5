"""The work of a round is bounded, whatever its view: placements and calls of the policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.model.job import Job, JobId, Mode, Queued, Running
from rota.core.placement.placer import Placement, place
from rota.core.scheduling import defragment
from rota.core.scheduling import round as scheduling_round
from rota.core.scheduling.policy_api import Budget, Policy, Targets
from rota.core.scheduling.view import Rules, View
from rota.policies.registry import parse
from tests.property.test_placement import scenes
from tests.support.seed_counts import count
from tests.unit.core.view_builders import job, nodes, runs, view

PLACEMENTS_MAX = 3
POLICY_CALLS_MAX = 2
POLICIES = ["fifo", "srjf", "elastic-fifo", "elastic-srjf", "ffdl", "afs-l"]


@dataclass(frozen=True)
class CountedPolicy:
    """A policy that counts its calls for each pool of jobs."""

    policy: Policy
    calls: Counter[tuple[JobId, ...]] = field(default_factory=Counter[tuple[JobId, ...]])

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        self.calls[tuple(job.id for job in jobs)] += 1
        return self.policy.size(jobs, budget, now=now)


@dataclass
class Counts:
    placements: int = 0
    policy_calls: int = 0


def counted(before: View, policy: str) -> Counts:
    """The placements and the calls of the policy for one pool in one round."""
    counts, asked = Counts(), CountedPolicy(parse(policy))

    def counted_place(*arguments: Any, **named: Any) -> Placement:
        counts.placements += 1
        return place(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling_round, "place", counted_place)
        patch.setattr(defragment, "place", counted_place)
        assert not scheduling_round.decide(before, asked).violations
    counts.policy_calls = max(asked.calls.values(), default=0)
    return counts


@st.composite
def views(draw: st.DrawFn) -> View:
    """Fragmented clusters with young, pinned and starving jobs of all modes."""
    before = draw(scenes()).before
    rules = Rules(is_guarded=draw(st.booleans()))
    jobs = {job_id: draw(varied(job)) for job_id, job in before.jobs.items()}
    return replace(before, jobs=jobs, rules=rules)


@st.composite
def varied(draw: st.DrawFn, of: Job) -> Job:
    since_s = draw(st.sampled_from([-1e6, -100.0, -10.0]))
    phase: Any = of.phase
    assert isinstance(phase, Queued | Running)
    least = draw(st.integers(1, max(1, len(of.allocation))))
    spec = replace(
        of.spec,
        min_workers=least,
        max_workers=max(least, len(of.allocation), draw(st.integers(1, 9))),
        requested_workers=least,
        mode=draw(st.sampled_from(list(Mode))),
    )
    pinned = draw(st.sampled_from([None, None, None, least, spec.max_workers]))
    return replace(of, spec=spec, phase=replace(phase, since_s=since_s), pinned_workers=pinned)


@settings(max_examples=count(1_000))
@given(before=views(), policy=st.sampled_from(POLICIES))
def test_a_round_places_at_most_three_times_and_asks_the_policy_at_most_twice(
    before: View, policy: str
) -> None:
    counts = counted(before, policy)
    assert counts.placements <= PLACEMENTS_MAX
    assert counts.policy_calls <= POLICY_CALLS_MAX


def test_a_defragmentation_that_finds_nothing_is_the_longest_round() -> None:
    """A placement, an attempt to pack all jobs again, and a placement of new sizes."""
    busy = [runs(f"{name}{i}", f"n{i}/{at}") for i in (1, 2) for name, at in (("a", "0,1"),)]
    before = view(nodes("3 3"), *busy, job("wide", gpus=2), job("small"))
    assert counted(before, "fifo") == Counts(placements=3, policy_calls=2)


def test_a_quiet_round_places_once() -> None:
    before = view(nodes("2 2"), runs("a", "n1/0"), job("new"))
    assert counted(before, "elastic-fifo") == Counts(placements=1, policy_calls=1)
