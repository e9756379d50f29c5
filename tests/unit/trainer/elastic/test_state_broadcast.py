"""A state split into chunks and joined again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from rota_trainer.elastic.state_broadcast import join_tensors, plan, split_tensors  # noqa: E402


@given(sizes=st.lists(st.integers(0, 40), max_size=12), chunk_bytes=st.integers(1, 16))
def test_every_byte_is_in_one_chunk_and_no_chunk_is_too_big(
    sizes: list[int], chunk_bytes: int
) -> None:
    chunks = plan(sizes, chunk_bytes)
    told = [
        (piece.tensor, at)
        for chunk in chunks
        for piece in chunk
        for at in range(piece.begin, piece.end)
    ]
    assert told == [(tensor, at) for tensor, size in enumerate(sizes) for at in range(size)]
    for chunk in chunks:
        places = [
            at for piece in chunk for at in range(piece.at, piece.at + piece.end - piece.begin)
        ]
        assert places == list(range(len(places)))
        assert 0 < len(places) <= chunk_bytes


def test_split_and_joined_state_is_equal() -> None:
    state = {
        "weights": torch.arange(6.0).reshape(2, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "steps": [torch.tensor(7), (torch.tensor([True, False]), "word", 2.5, None)],
        "empty": torch.empty(0),
    }
    sent: list[Any] = []
    outline = split_tensors(state, sent)
    arrived: list[Any] = []
    again = join_tensors(outline, arrived, device=torch.device("cpu"))
    for here, there in zip(arrived, sent, strict=True):
        assert here.dtype == there.dtype
        here.copy_(there)
    assert torch.equal(again["weights"], state["weights"])
    assert torch.equal(again["half"], state["half"])
    assert again["steps"][0].item() == 7
    assert again["steps"][1][1:] == ("word", 2.5, None)
    assert again["empty"].shape == (0,)
