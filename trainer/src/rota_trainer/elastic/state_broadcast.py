"""Broadcasts the state of one worker to the workers that are behind it, in a few large chunks.

The outline is sent first: the state with each tensor replaced by its type and shape. The bytes of
all tensors follow in chunks. A receiver changes its own state only after everything has arrived,
because the sender may fail in the middle and the receiver may be the next sender.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist

from rota_trainer.torch.safe_load import allow_classes

CHUNK_BYTES = 32 << 20


class TensorSlice(NamedTuple):
    """A range of bytes of a tensor, and its offset in the chunk."""

    tensor: int
    begin: int
    end: int
    at: int


def plan(sizes: list[int], chunk_bytes: int = CHUNK_BYTES) -> list[list[TensorSlice]]:
    """Divide tensors of these sizes (in bytes) into chunks."""
    chunks: list[list[TensorSlice]] = [[]]
    filled = 0
    for tensor, size in enumerate(sizes):
        begin = 0
        while begin < size:
            if filled == chunk_bytes:
                chunks.append([])
                filled = 0
            n_bytes = min(size - begin, chunk_bytes - filled)
            chunks[-1].append(TensorSlice(tensor, begin, begin + n_bytes, filled))
            begin += n_bytes
            filled += n_bytes
    return [chunk for chunk in chunks if chunk]


def split_tensors(state: Any, tensors: list[torch.Tensor]) -> Any:
    """The outline of a state: each tensor is replaced by its type and shape, and appended to
    `tensors`."""
    if isinstance(state, torch.Tensor):
        tensors.append(state.detach())
        dtype = str(state.dtype).partition(".")[2]
        return {"__tensor__": [dtype, list(state.shape), state.device.type]}
    if isinstance(state, dict):
        held = cast("dict[Any, Any]", state)
        return {key: split_tensors(value, tensors) for key, value in held.items()}
    if type(state) in (list, tuple):
        return type(state)(split_tensors(value, tensors) for value in state)
    return state


def join_tensors(outline: Any, tensors: list[torch.Tensor], *, device: torch.device) -> Any:
    """The state of an outline, with new, empty tensors, which are also appended to `tensors`."""
    if isinstance(outline, dict):
        held = cast("dict[Any, Any]", outline)
        if "__tensor__" in held:
            dtype, shape, kind = held["__tensor__"]
            where = torch.device("cpu") if kind == "cpu" else device
            tensors.append(torch.empty(shape, dtype=getattr(torch, dtype), device=where))
            return tensors[-1]
        return {key: join_tensors(value, tensors, device=device) for key, value in held.items()}
    if type(outline) in (list, tuple):
        return type(outline)(join_tensors(value, tensors, device=device) for value in outline)
    return outline


def send(state: Any, *, source: int, device: torch.device) -> None:
    """Send the state to all other members of the process group."""
    tensors: list[torch.Tensor] = []
    outline = split_tensors(state, tensors)
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
    """Receive the state from `source`. Without `keeps`, take part in the broadcast and return None.
    Only `classes`, tensors and plain values are loaded."""
    n_bytes = torch.zeros(1, dtype=torch.int64, device=device)
    dist.broadcast(n_bytes, source)
    head = torch.empty(int(n_bytes), dtype=torch.uint8, device=device)
    dist.broadcast(head, source)
    with allow_classes(classes):
        read = torch.load(io.BytesIO(head.cpu().numpy().tobytes()), weights_only=True)
    tensors: list[torch.Tensor] = []
    state = join_tensors(read["outline"], tensors, device=device) if keeps else None
    contents = [_bytes_of(tensor) for tensor in tensors]
    for chunk in plan(read["sizes"]):
        packed = _empty(chunk, device)
        dist.broadcast(packed, source)
        for tensor, begin, end, at in chunk if keeps else []:
            contents[tensor][begin:end] = packed[at : at + end - begin]
    return state


def _empty(chunk: list[TensorSlice], device: torch.device) -> torch.Tensor:
    last = chunk[-1]
    return torch.empty(last.at + last.end - last.begin, dtype=torch.uint8, device=device)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor as bytes; a copy if the tensor is not contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
