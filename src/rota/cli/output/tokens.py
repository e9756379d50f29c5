"""Tokens as a table or as JSON, without their secrets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.output.console import print_json
from rota.cli.output.format import moment
from rota.cli.output.table import Column, print_table

if TYPE_CHECKING:
    from rota.wire.daemon import TokenView


def print_tokens(tokens: Sequence[TokenView], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(token) for token in tokens])
    else:
        print_table(columns(tokens, now=time.time()))


def columns(tokens: Sequence[TokenView], *, now: float) -> list[Column]:
    cells = {
        "id": [token.id for token in tokens],
        "user": [token.user for token in tokens],
        "scope": [token.scope for token in tokens],
        "created": [moment(token.created_s) for token in tokens],
        "expires": [moment(token.expires_s) for token in tokens],
        "state": [_state(token, now) for token in tokens],
    }
    return [Column(title, tuple(each), is_number=False) for title, each in cells.items()]


def _state(token: TokenView, now: float) -> str:
    if token.revoked_s is not None:
        return "revoked"
    return "expired" if token.expires_s is not None and token.expires_s <= now else "valid"
