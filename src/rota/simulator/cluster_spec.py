"""The cluster of a simulation, from a short description such as `3x4` or `2x4:V100,16x8:A100`.

Each part is `NODESxGPUS[:TYPE][@GPU_MEMORY][/CPUScpu][/MEMORY][/LABEL=VALUE]...`: so many nodes
with so many GPUs each; the rest is optional. `4x8:A100@80GiB/96cpu/1TiB/disk=ssd` says all of it.
"""

from __future__ import annotations

import math
import re

from rota.core.model import GIB, Gpu, Labels, Node, NodeId
from rota.core.notation import parse_bytes
from rota.errors import UserError, shown

MAX_NODES = 100_000
MAX_GPUS_PER_NODE = 1_024
MAX_GPUS = 1_000_000
DEFAULT_TYPE = "gpu"
DEFAULT_GPU_BYTES = 16 * GIB
EXAMPLE = "write 3x4, 2x4:V100,16x8:A100 or, with all there is, 3x4:A100@80GiB/96cpu/1TiB/disk=ssd"

_PART = re.compile(
    r"(?P<nodes>[0-9]{1,9})x(?P<gpus>[0-9]{1,9})"
    r"(?::(?P<type>[A-Za-z0-9][A-Za-z0-9._-]*))?"
    r"(?:@(?P<card>[0-9.]+[A-Za-z]+))?"
    r"(?:/(?P<cpus>[0-9]{1,9})cpu)?"
    r"(?:/(?P<memory>[0-9.]+[A-Za-z]+))?"
    r"(?P<labels>(?:/[^/=\s]+=[^/=\s]*)*)",
    re.ASCII,
)


def parse_cluster(text: str) -> tuple[Node, ...]:
    """The nodes that the description names, numbered from `node-01` in its order."""
    parts = [_parse_part(part.strip(), text) for part in text.split(",")]
    total = sum(count for count, _ in parts)
    if not 0 < total <= MAX_NODES:
        raise _error(text, f"{total} nodes are not between 1 and {MAX_NODES:,}")
    n_gpus = sum(count * len(shape.gpus) for count, shape in parts)
    if n_gpus > MAX_GPUS:
        raise _error(text, f"{n_gpus:,} GPUs are more than {MAX_GPUS:,}")
    digits = max(2, len(str(total)))
    shapes = (shape for count, shape in parts for _ in range(count))
    return tuple(
        Node(
            NodeId(f"node-{number:0{digits}}"),
            gpus=shape.gpus,
            cpus=shape.cpus,
            memory_bytes=shape.memory_bytes,
            labels=shape.labels,
        )
        for number, shape in enumerate(shapes, start=1)
    )


def _parse_part(part: str, text: str) -> tuple[int, Node]:
    """How many nodes, and one of them as a pattern for all."""
    found = _PART.fullmatch(part)
    if found is None:
        raise _error(text, f"'{shown(part)}' is not understood")
    gpus = int(found["gpus"])
    if gpus > MAX_GPUS_PER_NODE:
        raise _error(text, f"{gpus} GPUs in a node are more than {MAX_GPUS_PER_NODE:,}")
    kind = found["type"] or DEFAULT_TYPE
    try:
        card = parse_bytes(found["card"]) if found["card"] else DEFAULT_GPU_BYTES
        memory = parse_bytes(found["memory"]) if found["memory"] else math.inf
    except ValueError as error:
        raise _error(text, str(error)) from None
    pattern = Node(
        NodeId(""),
        gpus=tuple(Gpu(index, kind, card) for index in range(gpus)),
        cpus=float(found["cpus"]) if found["cpus"] else math.inf,
        memory_bytes=memory,
        labels=_labels(found["labels"], text),
    )
    return int(found["nodes"]), pattern


def _labels(written: str, text: str) -> Labels:
    pairs = [part.partition("=") for part in written.split("/")[1:]]
    names = [name for name, _, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _error(text, f"label '{shown(name)}' is given twice")
    return frozenset((name, value) for name, _, value in pairs)


def _error(text: str, message: str) -> UserError:
    return UserError(f"cluster '{shown(text)}': {message}", EXAMPLE)
