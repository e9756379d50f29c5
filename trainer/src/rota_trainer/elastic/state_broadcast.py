"""The state of one worker to all that are behind it, in a few large pieces.

First what the state is made of, with each tensor replaced by its shape; then the bytes of all
tensors, one after the other, in chunks. Nothing of a receiver is changed before all of it is there:
the sender may die in the middle, and the receiver may be the next to send.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist

from rota_trainer.torch.reading import also_safe

CHUNK_BYTES = 32 << 20


class Piece(NamedTuple):
    """Some bytes of a tensor, and where in the chunk they are."""

    tensor: int
    begin: int
    end: int
    at: int


def plan(sizes: list[int], chunk_bytes: int = CHUNK_BYTES) -> list[list[Piece]]:
    """Tensors of so many bytes, cut into chunks."""
    chunks: list[list[Piece]] = [[]]
    filled = 0
    for tensor, size in enumerate(sizes):
        begin = 0
        while begin < size:
            if filled == chunk_bytes:
                chunks.append([])
                filled = 0
            n_bytes = min(size - begin, chunk_bytes - filled)
            chunks[-1].append(Piece(tensor, begin, begin + n_bytes, filled))
            begin += n_bytes
            filled += n_bytes
    return [chunk for chunk in chunks if chunk]


def take_apart(state: Any, tensors: list[torch.Tensor]) -> Any:
    """The state with each tensor replaced by what is needed to make it again."""
    if isinstance(state, torch.Tensor):
        tensors.append(state.detach())
        dtype = str(state.dtype).partition(".")[2]
        return {"__tensor__": [dtype, list(state.shape), state.device.type]}
    if isinstance(state, dict):
        held = cast("dict[Any, Any]", state)
        return {key: take_apart(value, tensors) for key, value in held.items()}
    if type(state) in (list, tuple):
        return type(state)(take_apart(value, tensors) for value in state)
    return state


def put_together(outline: Any, tensors: list[torch.Tensor], *, device: torch.device) -> Any:
    """The state again, with new and empty tensors, which are also added to `tensors`."""
    if isinstance(outline, dict):
        held = cast("dict[Any, Any]", outline)
        if "__tensor__" in held:
            dtype, shape, kind = held["__tensor__"]
            where = torch.device("cpu") if kind == "cpu" else device
            tensors.append(torch.empty(shape, dtype=getattr(torch, dtype), device=where))
            return tensors[-1]
        return {key: put_together(value, tensors, device=device) for key, value in held.items()}
    if type(outline) in (list, tuple):
        return type(outline)(put_together(value, tensors, device=device) for value in outline)
    return outline


def send(state: Any, *, source: int, device: torch.device) -> None:
    """To all others of the process group."""
    tensors: list[torch.Tensor] = []
    outline = take_apart(state, tensors)
    contents = [_bytes_of(tensor) for tensor in tensors]
    sizes = [len(content) for content in contents]
    written = io.BytesIO()
    torch.save({"outline": outline, "sizes": sizes}, written)
    head = torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)
    dist.broadcast(torch.tensor([len(head)], device=device), source)
    dist.broadcast(head.to(device), source)
    for chunk in plan(sizes):
        packed = _empty(chunk, device)
        for tensor, begin, end, at in chunk:
            packed[at : at + end - begin] = contents[tensor][begin:end]
        dist.broadcast(packed, source)


def receive(*, source: int, device: torch.device, classes: set[type], keeps: bool) -> Any:
    """What `source` sent; None if it need not be kept. Only these classes are made, besides
    tensors and plain values."""
    n_bytes = torch.zeros(1, dtype=torch.int64, device=device)
    dist.broadcast(n_bytes, source)
    head = torch.empty(int(n_bytes), dtype=torch.uint8, device=device)
    dist.broadcast(head, source)
    with also_safe(classes):
        read = torch.load(io.BytesIO(head.cpu().numpy().tobytes()), weights_only=True)
    tensors: list[torch.Tensor] = []
    state = put_together(read["outline"], tensors, device=device) if keeps else None
    contents = [_bytes_of(tensor) for tensor in tensors]
    for chunk in plan(read["sizes"]):
        packed = _empty(chunk, device)
        dist.broadcast(packed, source)
        for tensor, begin, end, at in chunk if keeps else []:
            contents[tensor][begin:end] = packed[at : at + end - begin]
    return state


def _empty(chunk: list[Piece], device: torch.device) -> torch.Tensor:
    last = chunk[-1]
    return torch.empty(last.at + last.end - last.begin, dtype=torch.uint8, device=device)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, as bytes; a copy of it if it is not in one piece."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
