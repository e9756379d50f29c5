"""The key-value store that a job's torchrun agents share in one round. In memory, with limits."""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from binascii import Error

from rota.daemon.errors import RefusedError
from rota.errors import UserError, shown
from rota_trainer.torchrun.messages import (
    ABSENT,
    DONE,
    LARGEST_ANSWER,
    LARGEST_VALUE,
    LONGEST_KEY,
    MOST_KEYS_AT_ONCE,
    StoreRequest,
    StoreResponse,
)

MOST_KEYS = 10_000
MOST_BYTES = 16 * 1024**2
"""The limit for all keys and values of one round."""
MOST_NUMBER = 2**63
CHANGES = ("set", "add", "compare_set", "delete")
DEEDS = (*CHANGES, "get", "wait", "check", "count")
N_KEYS = {"add": 1, "compare_set": 1, "delete": 1, "count": 0}
N_VALUES = {"compare_set": 2}


class KeyValueLimitError(UserError):
    code = "too_large"


class KeyValueStore:
    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        """A random name: after a restart of the daemon the store of the same round has another."""
        self._values: dict[str, bytes] = {}
        self._n_bytes = 0
        self._newest: dict[int, tuple[int, StoreResponse]] = {}
        """Worker -> the sequence number of its newest change, and the response."""

    def handle(self, request: StoreRequest) -> StoreResponse:
        """Handle a request. A repeated change gets the same response and is not applied again."""
        if request.deed not in CHANGES:
            return self._read(request)
        sequence, answer = self._newest.get(request.worker, (0, None))
        if answer is None or sequence != request.sequence:
            answer = self._change(request)
            self._newest[request.worker] = (request.sequence, answer)
        return answer

    def _read(self, request: StoreRequest) -> StoreResponse:
        match request.deed:
            case "get":
                return self._get(request)
            case "wait":
                return self._done(state=DONE if self._has(request.keys) else ABSENT)
            case "check":
                return self._done(number=int(self._has(request.keys)))
            case _:
                return self._done(number=len(self._values))

    def _change(self, request: StoreRequest) -> StoreResponse:
        match request.deed:
            case "set":
                return self._set(request)
            case "add":
                return self._add(request)
            case "compare_set":
                return self._compare_set(request)
            case _:
                return self._delete(request)

    def _set(self, request: StoreRequest) -> StoreResponse:
        for key, value in zip(request.keys, request.values, strict=True):
            self._put(key, _decoded(value))
        return self._done()

    def _get(self, request: StoreRequest) -> StoreResponse:
        if not self._has(request.keys):
            return self._done(state=ABSENT)
        found = [self._values[key] for key in request.keys]
        n_bytes = sum(map(len, found))
        if n_bytes > LARGEST_ANSWER:
            raise KeyValueLimitError(
                f"{n_bytes} bytes of values; a response holds {LARGEST_ANSWER // 1024**2} MiB",
                "request fewer keys at once",
            )
        return self._done(values=[b64encode(value).decode() for value in found])

    def _add(self, request: StoreRequest) -> StoreResponse:
        (key,) = request.keys
        text = self._values.get(key, b"0")
        try:
            number = int(text[:20]) + request.amount
        except ValueError:
            raise RefusedError("keys", f"the value of '{shown(key)}' is not a number") from None
        if abs(number) >= MOST_NUMBER:
            raise RefusedError("amount", f"the sum of '{shown(key)}' would exceed 64 bits")
        self._put(key, str(number).encode())
        return self._done(number=number)

    def _compare_set(self, request: StoreRequest) -> StoreResponse:
        """Returns the value after the operation. If the key does not exist but a value was
        expected, returns the expected value, as torch's own stores do."""
        (key,) = request.keys
        expected, wanted = map(_decoded, request.values)
        found = self._values.get(key)
        if (found or b"") == expected and (found is not None or not expected):
            self._put(key, wanted)
            found = wanted
        return self._done(values=[b64encode(expected if found is None else found).decode()])

    def _delete(self, request: StoreRequest) -> StoreResponse:
        (key,) = request.keys
        found = self._values.pop(key, None)
        if found is not None:
            self._n_bytes -= len(key) + len(found)
        return self._done(number=int(found is not None))

    def _has(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def _put(self, key: str, value: bytes) -> None:
        before = self._values.get(key)
        n_more = len(value) + (len(key) if before is None else -len(before))
        n_keys = len(self._values) + (before is None)
        if n_keys > MOST_KEYS or self._n_bytes + n_more > MOST_BYTES:
            raise KeyValueLimitError(
                f"the store is full: it holds {MOST_KEYS} keys and {MOST_BYTES // 1024**2} MiB",
                "delete keys, or use another store",
            )
        self._values[key] = value
        self._n_bytes += n_more

    def _done(
        self, *, state: str = DONE, values: list[str] | None = None, number: int = 0
    ) -> StoreResponse:
        return StoreResponse(state, self.name, values or [], number)


def validate_request(request: StoreRequest) -> None:
    """Raises RefusedError for the first invalid field."""
    if request.deed not in DEEDS:
        raise RefusedError(
            "deed", f"unknown operation '{shown(request.deed)}'", f"use one of {', '.join(DEEDS)}"
        )
    n_keys = N_KEYS.get(request.deed)
    if len(request.keys) > MOST_KEYS_AT_ONCE or n_keys not in (None, len(request.keys)):
        wanted = f"up to {MOST_KEYS_AT_ONCE}" if n_keys is None else str(n_keys)
        raise RefusedError(
            "keys", f"got {len(request.keys)} keys", f"'{request.deed}' takes {wanted}"
        )
    n_values = N_VALUES.get(request.deed, len(request.keys) if request.deed == "set" else 0)
    if len(request.values) != n_values:
        raise RefusedError("values", f"got {len(request.values)} values instead of {n_values}")
    if any(not 0 < len(key) <= LONGEST_KEY for key in request.keys):
        raise RefusedError("keys", f"a key must have 1 to {LONGEST_KEY} characters")
    if abs(request.amount) >= MOST_NUMBER:
        raise RefusedError("amount", "exceeds 64 bits")
    for value in request.values:
        _decoded(value)


def _decoded(text: str) -> bytes:
    try:
        value = b64decode(text, validate=True)
    except (Error, ValueError):
        raise RefusedError("values", "a value is not valid base64") from None
    if len(value) > LARGEST_VALUE:
        raise KeyValueLimitError(
            f"a value of {len(value)} bytes is larger than {LARGEST_VALUE // 1024} KiB",
            "share large data in files or with collectives",
        )
    return value
