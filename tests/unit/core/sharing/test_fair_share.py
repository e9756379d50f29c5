"""Fair shares of projects: known divisions, and what must hold for every division."""

from __future__ import annotations

import math
import random

import pytest

from rota.core.sharing.fair_share import Claim, fair_shares

HUNGRY = 1000.0


def divided(n_gpus: float, *claims: Claim) -> str:
    """The shares as text, in the order of the claims."""
    return "/".join(f"{share:g}" for share in fair_shares(n_gpus, claims).values())


@pytest.mark.parametrize(
    ("n_gpus", "claims", "shares"),
    [
        (8, [Claim("a", HUNGRY, 3, 3), Claim("b", HUNGRY, 1, 1)], "6/2"),
        (4, [Claim("a", HUNGRY, 1), Claim("b", HUNGRY, 1)], "2/2"),
        (
            36,  # 2 of them belong to a project that wants no more.
            [
                Claim("a", HUNGRY, 8, 2),
                Claim("b", HUNGRY, 6, 3),
                Claim("c", HUNGRY, 0, 1),
                Claim("d", 2, 2, 0),
            ],
            "15/16/3/2",
        ),
        (5, [Claim("a", HUNGRY, 1), Claim("b", HUNGRY, 1)], "3/2"),
        (8, [Claim("a", 1, 4), Claim("b", 9, 2), Claim("c", 3, 2)], "1/4/3"),
    ],
)
def test_known_divisions(n_gpus: float, claims: list[Claim], shares: str) -> None:
    assert divided(n_gpus, *claims) == shares


def test_without_quotas_all_weights_are_equal() -> None:
    assert divided(9, Claim("a", HUNGRY), Claim("b", HUNGRY), Claim("c", HUNGRY)) == "3/3/3"


def test_quotas_above_the_cluster_are_reduced_in_proportion() -> None:
    assert divided(6, Claim("a", HUNGRY, 8), Claim("b", HUNGRY, 4)) == "4/2"
    assert divided(1, Claim("a", HUNGRY, 8), Claim("b", HUNGRY, 16)) == "0/1"


def test_quota_that_a_project_does_not_want_is_lent() -> None:
    assert divided(8, Claim("a", 0, 6), Claim("b", HUNGRY, 2)) == "0/8"


def test_limit_is_kept_and_wins_over_the_quota() -> None:
    assert divided(8, Claim("a", HUNGRY, 6, limit=2), Claim("b", HUNGRY, 2, limit=3)) == "2/3"


def test_last_gpu_goes_to_the_largest_remainder_then_the_older_then_the_name() -> None:
    assert divided(4, Claim("a", HUNGRY, 0, 1), Claim("b", HUNGRY, 0, 2)) == "1/3"
    older = Claim("b", HUNGRY, created_s=1)
    assert divided(5, Claim("a", HUNGRY, created_s=2), older) == "2/3"
    assert divided(5, Claim("b", HUNGRY), Claim("a", HUNGRY)) == "2/3"


def test_project_without_weight_takes_what_nobody_else_wants() -> None:
    nothing = Claim("a", HUNGRY, 0, 0, priority=9)
    assert divided(8, nothing, Claim("b", HUNGRY, 0, 1)) == "0/8"
    assert divided(8, nothing, Claim("b", 3, 0, 1)) == "5/3"


def test_higher_priority_is_satisfied_first_beyond_the_quotas() -> None:
    low, high = Claim("low", HUNGRY, 2, 1), Claim("high", 5, 1, 1, priority=1)
    assert divided(8, low, high) == "3/5"
    assert divided(4, low, high) == "2/2"


def test_parts_of_gpus_are_given_as_wanted() -> None:
    assert divided(2, Claim("a", 0.5, 1), Claim("b", HUNGRY, 1)) == "0.5/1.5"


@pytest.mark.parametrize("seed", range(300))
def test_shares_of_random_projects(seed: int) -> None:
    rng = random.Random(seed)
    claims = [
        Claim(
            f"p{i}",
            wants=rng.choice([0, rng.randint(0, 20), rng.randint(0, 80) / 4]),
            quota=rng.choice([0, rng.randint(0, 10)]),
            weight=rng.choice([None, 0, rng.randint(0, 5), rng.random()]),
            limit=rng.choice([None, rng.randint(0, 12)]),
            priority=rng.choice([0, 0, 1]),
            created_s=rng.randint(0, 2),
        )
        for i in range(rng.randint(1, 8))
    ]
    n_gpus = rng.randint(0, 40)
    shares = fair_shares(n_gpus, claims)
    shuffled = rng.sample(claims, len(claims))

    assert fair_shares(n_gpus, shuffled) == shares, "the order of the projects does not matter"
    demands = {
        each.name: min(each.wants, math.inf if each.limit is None else each.limit)
        for each in claims
    }
    assert all(0 <= shares[name] <= demand for name, demand in demands.items())
    total = sum(shares.values())
    assert total == pytest.approx(min(n_gpus, sum(demands.values()))), "no wanted GPU is left"
    if sum(min(each.quota, demands[each.name]) for each in claims) <= n_gpus:
        assert all(shares[each.name] >= min(each.quota, demands[each.name]) for each in claims)
