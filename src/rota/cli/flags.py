"""Lets a command with many options take them as one dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

import typer

T = TypeVar("T")


def option(
    *names: str, metavar: str, text: str, complete: Callable[[str], Any] | None = None
) -> Any:
    """An option with a value; `text` is its help."""
    return typer.Option(
        *names, metavar=metavar, help=text, show_default=False, autocompletion=complete
    )


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Turn a function of one dataclass into a command with one parameter per field."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)  # pyright: ignore[reportArgumentType]
    ]

    def command(function: Callable[[T], None]) -> Callable[..., None]:
        def called(**values: Any) -> None:
            function(kind(**values))

        called.__name__, called.__doc__ = function.__name__, function.__doc__
        called.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        called.__annotations__ = dict(hints)
        return called

    return command
