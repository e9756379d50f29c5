"""Division of samples between workers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from rota_trainer.elastic.sampler import (  # noqa: E402
    MIN_SAMPLES_PER_WORKER,
    batch_together,
    epoch_order,
    rate_factor,
    share,
    share_bounds,
)


@given(n_samples=st.integers(1, 300), size=st.integers(1, 40))
def test_shares_cover_the_batch_in_order(n_samples: int, size: int) -> None:
    parts = [share_bounds(n_samples, rank=rank, size=size) for rank in range(size)]
    assert parts[0][0] == 0
    assert parts[-1][1] == n_samples
    assert all(before[1] == after[0] for before, after in pairwise(parts))


@given(n_samples=st.integers(1, 300), size=st.integers(1, 40))
def test_shares_are_even_and_none_is_too_small_to_normalise(n_samples: int, size: int) -> None:
    sizes = [
        end - begin
        for begin, end in (share_bounds(n_samples, rank=rank, size=size) for rank in range(size))
    ]
    active = [each for each in sizes if each]
    assert max(active) - min(active) <= 1
    assert min(active) >= min(MIN_SAMPLES_PER_WORKER, n_samples)
    assert sizes[0] > 0, "the first worker's statistics count: it always has samples"


@given(
    length=st.integers(1, 200),
    batch=st.integers(1, 50),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    seed=st.integers(0, 5),
)
def test_each_sample_is_used_once_for_any_sizes(
    length: int, batch: int, sizes: list[int], seed: int
) -> None:
    ordered = epoch_order(length, seed=seed, epoch=0)
    used, seen, turn = 0, [], 0
    while used < length:
        size = sizes[turn % len(sizes)]
        shares = [share(ordered, used, batch=batch, rank=rank, size=size) for rank in range(size)]
        assert sum(each.weight for each in shares) == pytest.approx(1.0)
        seen += [sample for each in shares if each.weight for sample in each.samples]
        assert all(each.samples for each in shares), "all compute, so that no worker waits"
        used += shares[0].n_together
        turn += 1
    assert sorted(seen) == list(range(length))


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    assert epoch_order(50, seed=1, epoch=2).tolist() == epoch_order(50, seed=1, epoch=2).tolist()
    others = [
        epoch_order(50, seed=seed, epoch=epoch).tolist() for seed in range(4) for epoch in range(4)
    ]
    assert len({tuple(each) for each in others}) == 16


def test_batch_and_rate_scaling() -> None:
    assert [
        batch_together(8, size=3, scaling=scaling) for scaling in ("constant", "linear", "sqrt")
    ] == [
        8,
        24,
        24,
    ]
    assert [rate_factor(4, scaling) for scaling in ("constant", "linear", "sqrt")] == [1, 4, 2]
