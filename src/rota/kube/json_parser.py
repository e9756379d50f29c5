"""Decode JSON of an API server, whatever users wrote into its objects. Pure.

A user may nest the field `managedFields` of an object thousands of levels deep, and the API
server accepts this. msgspec fails on such an object with a RecursionError, and would fail on every
list and watch that contains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

MAX_DEPTH = 100
"""No field that rota reads is nested deeper."""
_BRACKETS_AND_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def parse_json(content: bytes) -> Any:
    """Values deeper than `MAX_DEPTH` become null if the content is too deep to decode."""
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        return msgspec.json.decode(b"".join(_without_deep_values(content)))


def _without_deep_values(content: bytes) -> Iterator[bytes]:
    """The content in pieces, without recursion."""
    depth = start = 0
    for token in _BRACKETS_AND_STRINGS.finditer(content):
        first = content[token.start()]
        if first in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                yield content[start : token.start()] + b"null"
        elif first in b"]}":
            depth -= 1
            if depth == MAX_DEPTH:
                start = token.end()
    yield content[start:]
