"""Errors of requests that the daemon rejects.

The API answers each with its `code`, message and hint; docs/reference/errors.md lists the codes.
"""

from __future__ import annotations

from rota.errors import UserError

CHANGE = "an administrator can raise the setting"


class RefusedError(UserError):
    """A field of the request has an invalid value."""

    code = "refused"

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(f"{field}: {message}", hint)
        self.field = field


class NotFoundError(UserError):
    """The thing does not exist, or the caller may not know that it exists."""

    code = "not_found"


class ForbiddenError(UserError):
    """The thing exists, but the caller may not use it."""

    code = "forbidden"


class LimitError(UserError):
    """A user is at one of their limits. `setting` is the name of the limit."""

    code = "too_many"

    def __init__(self, message: str, hint: str, *, setting: str) -> None:
        super().__init__(message, f"{hint}; {CHANGE} {setting}")
