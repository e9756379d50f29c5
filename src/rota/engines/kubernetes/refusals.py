"""Why an API server does not keep an object, and what will not work with it either way. Pure."""

from __future__ import annotations

import re

import msgspec

from rota.engines.kubernetes.objects import Object, part
from rota.engines.kubernetes.transport import NOT_FOUND, ApiError
from rota.errors import NotKeptError

CONFLICT, FORBIDDEN = 409, 403
BLOATED = "its TrainingJob is too large for the cluster to keep a status in it"
MOST_BYTES = 768 * 1024
"""Of what people may put into an object, in metadata and spec. A cluster keeps 1.5 MiB of all."""
_NAMED = re.compile(r'^(the cluster refused: )?\S+ "[^"]*" is (forbidden|invalid): ')
"""How an API server begins: with a name that nobody gave."""
_WITHOUT_A_RIGHT = re.compile(r'is forbidden: User ".*" cannot [a-z]+ resource ')


def is_refusal(error: ApiError) -> bool:
    """Whether the API server says no to what it was given: a quota is full, a site has a rule
    against it. What is not there, or changed meanwhile, is another matter."""
    return not error.is_passing and error.status not in (NOT_FOUND, CONFLICT)


def is_about_one(error: ApiError) -> bool:
    """Whether it says no to this object, where others may well be written. A right that we have
    not is everybody's trouble."""
    is_ours = error.status == FORBIDDEN and _WITHOUT_A_RIGHT.search(error.message)
    return is_refusal(error) and not is_ours


def not_kept(error: ApiError, what: str = "it") -> NotKeptError:
    why = _NAMED.sub("", error.message)
    return NotKeptError(f"the cluster does not keep {what}: {why}", "ask whoever runs the cluster")


def is_bloated(found: Object) -> bool:
    """Whether people put so much into an object that there may be no room for its status."""
    theirs = {"metadata": part(found, "metadata"), "spec": part(found, "spec")}
    return len(msgspec.json.encode(theirs)) > MOST_BYTES
