"""Keys and values that the agents of a job share in one turn, in memory and within bounds."""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from binascii import Error

from rota.daemon.fields import RefusedError
from rota.errors import UserError, shown
from rota_trainer.meetings import (
    ABSENT,
    DONE,
    LARGEST_ANSWER,
    LARGEST_VALUE,
    LONGEST_KEY,
    MOST_KEYS_AT_ONCE,
    Exchange,
    Found,
)

MOST_KEYS = 10_000
MOST_BYTES = 16 * 1024**2
"""Of one turn's keys and values together."""
MOST_NUMBER = 2**63
CHANGES = ("set", "add", "compare_set", "delete")
DEEDS = (*CHANGES, "get", "wait", "check", "count")
N_KEYS = {"add": 1, "compare_set": 1, "delete": 1, "count": 0}
N_VALUES = {"compare_set": 2}


class FullError(UserError):
    code = "too_large"


class KeyValues:
    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        """Tells it from the store of the same turn before the daemon was started again."""
        self._values: dict[str, bytes] = {}
        self._n_bytes = 0
        self._newest: dict[int, tuple[int, Found]] = {}
        """Worker -> its newest change, with the answer to it."""

    def do(self, asked: Exchange) -> Found:
        """A change that comes again is answered as before, without making it twice."""
        if asked.deed not in CHANGES:
            return self._look(asked)
        sequence, answer = self._newest.get(asked.worker, (0, None))
        if answer is None or sequence != asked.sequence:
            answer = self._change(asked)
            self._newest[asked.worker] = (asked.sequence, answer)
        return answer

    def _look(self, asked: Exchange) -> Found:
        match asked.deed:
            case "get":
                return self._get(asked)
            case "wait":
                return self._done(state=DONE if self._has(asked.keys) else ABSENT)
            case "check":
                return self._done(number=int(self._has(asked.keys)))
            case _:
                return self._done(number=len(self._values))

    def _change(self, asked: Exchange) -> Found:
        match asked.deed:
            case "set":
                return self._set(asked)
            case "add":
                return self._add(asked)
            case "compare_set":
                return self._compare_set(asked)
            case _:
                return self._delete(asked)

    def _set(self, asked: Exchange) -> Found:
        for key, value in zip(asked.keys, asked.values, strict=True):
            self._put(key, _decoded(value))
        return self._done()

    def _get(self, asked: Exchange) -> Found:
        if not self._has(asked.keys):
            return self._done(state=ABSENT)
        found = [self._values[key] for key in asked.keys]
        n_bytes = sum(map(len, found))
        if n_bytes > LARGEST_ANSWER:
            raise FullError(
                f"these values have {n_bytes} bytes, and an answer {LARGEST_ANSWER // 1024**2} MiB",
                "ask for fewer keys at once",
            )
        return self._done(values=[b64encode(value).decode() for value in found])

    def _add(self, asked: Exchange) -> Found:
        (key,) = asked.keys
        text = self._values.get(key, b"0")
        try:
            number = int(text[:20]) + asked.amount
        except ValueError:
            raise RefusedError("keys", f"the value of '{shown(key)}' is no number") from None
        if abs(number) >= MOST_NUMBER:
            raise RefusedError("amount", f"'{shown(key)}' would be more than 64 bits hold")
        self._put(key, str(number).encode())
        return self._done(number=number)

    def _compare_set(self, asked: Exchange) -> Found:
        """What is there afterwards; of a key that is not there and was expected to be, what was
        expected, as torch's own stores answer."""
        (key,) = asked.keys
        expected, wanted = map(_decoded, asked.values)
        found = self._values.get(key)
        if (found or b"") == expected and (found is not None or not expected):
            self._put(key, wanted)
            found = wanted
        return self._done(values=[b64encode(expected if found is None else found).decode()])

    def _delete(self, asked: Exchange) -> Found:
        (key,) = asked.keys
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
            raise FullError(
                f"the store of a turn holds {MOST_KEYS} keys and {MOST_BYTES // 1024**2} MiB",
                "delete keys, or use a store of your own",
            )
        self._values[key] = value
        self._n_bytes += n_more

    def _done(
        self, *, state: str = DONE, values: list[str] | None = None, number: int = 0
    ) -> Found:
        return Found(state, self.name, values or [], number)


def check(asked: Exchange) -> None:
    """Raises for the first field that holds what it may not."""
    if asked.deed not in DEEDS:
        raise RefusedError(
            "deed", f"'{shown(asked.deed)}' is unknown", f"there are {', '.join(DEEDS)}"
        )
    n_keys = N_KEYS.get(asked.deed)
    if len(asked.keys) > MOST_KEYS_AT_ONCE or n_keys not in (None, len(asked.keys)):
        wanted = f"up to {MOST_KEYS_AT_ONCE}" if n_keys is None else str(n_keys)
        raise RefusedError("keys", f"there are {len(asked.keys)}", f"'{asked.deed}' takes {wanted}")
    n_values = N_VALUES.get(asked.deed, len(asked.keys) if asked.deed == "set" else 0)
    if len(asked.values) != n_values:
        raise RefusedError("values", f"there are {len(asked.values)} instead of {n_values}")
    if any(not 0 < len(key) <= LONGEST_KEY for key in asked.keys):
        raise RefusedError("keys", f"a key has 1 to {LONGEST_KEY} characters")
    if abs(asked.amount) >= MOST_NUMBER:
        raise RefusedError("amount", "it has more than 64 bits")
    for value in asked.values:
        _decoded(value)


def _decoded(text: str) -> bytes:
    try:
        value = b64decode(text, validate=True)
    except (Error, ValueError):
        raise RefusedError("values", "a value is no base64") from None
    if len(value) > LARGEST_VALUE:
        raise FullError(
            f"a value of {len(value)} bytes is larger than {LARGEST_VALUE // 1024} KiB",
            "share large data in files or with collectives",
        )
    return value
