"""Contexts as a table or as JSON, without their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rota.cli.output.console import print_json
from rota.cli.output.table import Column, print_table

if TYPE_CHECKING:
    from rota.client.contexts import Context


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
        "": ["*" if name == current else "" for name in contexts],
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
