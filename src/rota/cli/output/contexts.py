"""Contexts as a table, or as JSON: where they lead, and never what opens the door there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rota.cli.output.json import say_json
from rota.cli.output.table import Column, say_table

if TYPE_CHECKING:
    from rota.client.contexts import Context


def say_contexts(contexts: Mapping[str, Context], *, current: str, as_json: bool) -> None:
    if as_json:
        say_json(
            [
                {"name": name, "url": each.url, "token": token(each), "is_current": name == current}
                for name, each in contexts.items()
            ]
        )
        return
    cells = {
        "": ["*" if name == current else "" for name in contexts],
        "name": list(contexts),
        "url": [each.url for each in contexts.values()],
        "token": [token(each) for each in contexts.values()],
    }
    say_table([Column(title, tuple(each), is_number=False) for title, each in cells.items()])


def token(context: Context) -> str:
    """Where it comes from."""
    if context.is_kubernetes:
        at = f" {context.kube_context}" if context.kube_context else ""
        place = f" in {context.kubeconfig}" if context.kubeconfig else ""
        return f"kubernetes{at}{place}"
    return context.token_file or ("kept" if context.token else "none")
