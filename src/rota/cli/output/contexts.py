"""Contexts and tokens as tables or as JSON, without secrets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.output.console import print_json
from rota.cli.output.format import moment
from rota.cli.output.table import Column, print_table

if TYPE_CHECKING:
    from rota.client.contexts import Context
    from rota.wire.daemon import TokenView


def print_contexts(contexts: Mapping[str, Context], *, current: str, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "url": each.url,
                    "token": _token_source(each),
                    "is_current": name == current,
                }
                for name, each in contexts.items()
            ]
        )
        return
    cells = {
        "current": ["*" if name == current else "" for name in contexts],
        "name": list(contexts),
        "url": [each.url for each in contexts.values()],
        "token": [_token_source(each) for each in contexts.values()],
    }
    print_table([Column(title, tuple(each), is_number=False) for title, each in cells.items()])


def _token_source(context: Context) -> str:
    """Where the token comes from, without the token."""
    if context.is_kubernetes:
        at = f" {context.kube_context}" if context.kube_context else ""
        place = f" in {context.kubeconfig}" if context.kubeconfig else ""
        return f"kubernetes{at}{place}"
    return context.token_file or ("kept" if context.token else "none")


def print_tokens(tokens: Sequence[TokenView], *, as_json: bool) -> None:
    if as_json:
        print_json([token_object(token) for token in tokens])
    else:
        print_table(token_columns(tokens, now=time.time()))


def token_object(token: TokenView) -> dict[str, object]:
    """A token as JSON, the same in every command."""
    return {**asdict(token), "state": _state(token, time.time())}


def token_columns(tokens: Sequence[TokenView], *, now: float) -> list[Column]:
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
