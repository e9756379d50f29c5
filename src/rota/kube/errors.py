"""Errors of the Kubernetes API, and how to classify them: transient, permanent, or about one
object."""

from __future__ import annotations

import re

import msgspec

from rota.errors import UnavailableError, WriteRejectedError, shown
from rota.kube.resources import Object, part

MESSAGE_CHARS = 400
"""The longest part of an API server's message that is passed on, in characters."""
UNREACHABLE = 0
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409
GONE, TOO_LARGE, TOO_MANY = 410, 413, 429
FIRST_ERROR, SERVER_ERROR = 400, 500
OBJECT_TOO_LARGE = "its TrainingJob is too large: the cluster cannot store its status"
MAX_USER_BYTES = 768 * 1024
"""The limit for what users may write into metadata and spec. A cluster stores 1.5 MiB per
object."""
_OBJECT_PREFIX = re.compile(r'^(the cluster refused: )?\S+ "[^"]*" is (forbidden|invalid): ')
"""The start of an API server's message: the object's name, which users did not choose."""
_MISSING_PERMISSION = re.compile(r'is forbidden: User ".*" cannot [a-z]+ resource ')
TYPED_PATCH_FAILED = "failed to create typed patch object"
"""An invalid object in an apply request, for example a list with a key twice. The API server
reports it with status 500, although a retry cannot succeed."""


class ApiError(UnavailableError):
    """The API server rejected a request, or did not answer (`status` 0). `reason` is the reason
    of its Status object: AlreadyExists, Conflict, Expired, Forbidden, Invalid, NotFound, ..."""

    def __init__(self, status: int, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later. 401 counts: credentials are renewed."""
        transient = (UNREACHABLE, UNAUTHORIZED, TOO_MANY)
        is_final = self.is_too_large or TYPED_PATCH_FAILED in self.message
        return self.status in transient or (self.status >= SERVER_ERROR and not is_final)

    @property
    def is_too_large(self) -> bool:
        """Whether the object exceeds the size limit. etcd reports the limit only in its message."""
        return self.status == TOO_LARGE or "request is too large" in self.message

    @property
    def is_outage(self) -> bool:
        """Whether the API server runs, but a webhook that must admit the object does not. The
        API server reports its own failures with other reasons."""
        return self.status == SERVER_ERROR and self.reason == "InternalError"


class NotStoredYetError(WriteRejectedError):
    """The cluster cannot store this object now: a webhook that must admit it fails."""


def error_from_response(status: int, content: bytes) -> ApiError:
    """From a `Status` object, or from the text of a proxy in between."""
    try:
        response = msgspec.json.decode(content)
        return error_from_status(response, status=status)
    except (msgspec.DecodeError, AttributeError, ValueError):
        return unreadable_response(status, content)


def error_from_status(response: Object, *, status: int = 0) -> ApiError:
    code = response.get("code") or status
    message = shown(str(response.get("message") or "no reason given"), MESSAGE_CHARS)
    return ApiError(int(code), str(response.get("reason") or ""), f"the cluster refused: {message}")


def unreadable_response(status: int, content: bytes) -> ApiError:
    """An API server answers in plain text if it does not know the kind of object."""
    response = shown(content[:MESSAGE_CHARS].decode(errors="replace").strip())
    reason = "NotFound" if status == NOT_FOUND else "Unreadable"
    return ApiError(status, reason, f"the cluster answered with {status}: {response}")


def is_refusal(error: ApiError) -> bool:
    """Whether the API server refuses the object or the operation permanently: a quota is used
    up, or a policy forbids it. Missing objects and conflicting writes are not refusals."""
    return not error.is_transient and error.status not in (NOT_FOUND, CONFLICT)


def is_object_refusal(error: ApiError) -> bool:
    """Whether the API server refuses this object, while it may accept others. A missing RBAC
    permission concerns all objects, so it is not counted."""
    is_missing_permission = error.status == FORBIDDEN and _MISSING_PERMISSION.search(error.message)
    return is_refusal(error) and not is_missing_permission


def not_kept_error(error: ApiError, what: str = "the object") -> WriteRejectedError:
    why = _OBJECT_PREFIX.sub("", error.message)
    return WriteRejectedError(
        f"the cluster refused to store {what}: {why}", "ask the cluster's administrator"
    )


def not_stored_yet_error(error: ApiError, what: str = "the object") -> NotStoredYetError:
    return NotStoredYetError(
        f"the cluster cannot store {what} now: {error.message}",
        "retry later; tell the cluster's administrator that the webhook fails",
    )


def is_oversized(found: Object) -> bool:
    """Whether users wrote so much into an object that its status may not fit."""
    written_by_users = {"metadata": part(found, "metadata"), "spec": part(found, "spec")}
    return len(msgspec.json.encode(written_by_users)) > MAX_USER_BYTES
