"""A store of torch over the daemon's wire: keys and values that the agents of one turn share."""

from __future__ import annotations

import itertools
import random
import threading
import time
from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any, NoReturn, Union

from torch.distributed import (
    DistNetworkError,
    DistStoreError,
    Store,  # pyright: ignore[reportPrivateImportUsage]
)

from rota_trainer.meetings import (
    ABSENT,
    BROKEN,
    LARGEST_VALUE,
    LONGEST_KEY,
    LONGEST_WAIT_S,
    MOVED,
    STORE,
    Exchange,
    Found,
    Seat,
)
from rota_trainer.messages import to_json
from rota_trainer.place import Place
from rota_trainer.wire import PATIENCE_S, Wire, WireError

AGAIN_S = 0.2

Text = Union[str, bytes]


class BrokenTurnError(RuntimeError):
    """The members of the turn change: whoever waits in it for the others waits in vain."""


class RotaStore(Store):
    """Waits up to `timeout` for keys that are not there, and for a daemon that is away. What it
    put there it puts there again when it finds that the daemon was started anew."""

    def __init__(self, place: Place, seat: Seat) -> None:
        super().__init__()
        self._place = place
        self._seat = seat
        self._wires = threading.local()
        self._open: list[Wire] = []
        self._changing = threading.Lock()
        self._moving = threading.Lock()
        self._sequence = itertools.count(random.getrandbits(48))
        self._store = ""
        self._values: dict[str, bytes] = {}
        self._sums: dict[str, int] = {}
        """What this agent has set and added."""

    def close(self) -> None:
        """Hang up; whoever asks again calls again."""
        for wire in self._open:
            wire.close()

    # -- what torch asks ------------------------------------------------------------------------

    def set(self, key: str, value: Text) -> None:
        self.multi_set([key], [value])

    def multi_set(self, keys: list[str], values: list[Text]) -> None:
        encoded = [_bytes(value) for value in values]
        self._change("set", keys, values=encoded)
        self._values.update(zip(keys, encoded))
        for key in keys:
            self._sums.pop(key, None)

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        found = self._ask(self._exchange("get", keys), self._limit)
        return [b64decode(value) for value in found.values]

    def add(self, key: str, value: int) -> int:
        found = self._change("add", [key], amount=value)
        self._sums[key] = self._sums.get(key, 0) + value
        return found.number

    def compare_set(self, key: str, expected_value: Text, desired_value: Text) -> bytes:
        wanted = _bytes(desired_value)
        found = self._change("compare_set", [key], values=[_bytes(expected_value), wanted])
        value = b64decode(found.values[0])
        if value == wanted:
            self._values[key] = wanted
        return value

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._ask(self._exchange("wait", keys), timeout or self._limit)

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask(self._exchange("check", keys), self._limit).number)

    def delete_key(self, key: str) -> bool:
        found = self._change("delete", [key])
        self._values.pop(key, None)
        self._sums.pop(key, None)
        return bool(found.number)

    def num_keys(self) -> int:
        return self._ask(self._exchange("count", []), self._limit).number

    # A PrefixStore calls these two by their names in C++.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    @property
    def _limit(self) -> timedelta:
        """What `set_timeout` of torch's own part of this object has set."""
        own: Any = self
        return own.timeout

    # -- the wire -------------------------------------------------------------------------------

    def _exchange(
        self,
        deed: str,
        keys: list[str],
        *,
        values: list[bytes] | None = None,
        amount: int = 0,
    ) -> Exchange:
        _check(keys, values or [])
        return Exchange(
            self._place.worker,
            self._seat.generation,
            self._seat.turn,
            deed,
            list(keys),
            [b64encode(value).decode() for value in values or []],
            amount,
            next(self._sequence),
        )

    def _change(self, deed: str, keys: list[str], **more: Any) -> Found:
        """One at a time: the daemon knows the newest change of each agent by its number."""
        with self._changing:
            return self._ask(self._exchange(deed, keys, **more), self._limit)

    def _ask(self, exchange: Exchange, timeout: timedelta) -> Found:
        until = time.monotonic() + timeout.total_seconds()
        while True:
            left_s = max(0.0, until - time.monotonic())
            try:
                found = self._post(exchange, min(left_s, LONGEST_WAIT_S))
            except WireError as error:
                if error.is_final or error.is_refusal or left_s <= 0:
                    raise DistNetworkError(f"the store of rota: {error.why}") from None
                time.sleep(min(AGAIN_S, left_s))
                continue
            if found.state == BROKEN:
                raise BrokenTurnError("the members of this job change")
            if found.state == MOVED:
                self._put_again(found.store)
            elif found.state != ABSENT:
                return found
            elif left_s <= 0:
                _raise_absent(exchange, timeout)

    def _put_again(self, store: str) -> None:
        """Once, however many threads find that the store is another."""
        with self._moving:
            if self._store == store:
                return
            self._store = store
            changes = [
                self._exchange("set", [key], values=[value]) for key, value in self._values.items()
            ]
            changes += [
                self._exchange("add", [key], amount=amount) for key, amount in self._sums.items()
            ]
            for change in changes:
                self._post(change, 0.0)

    def _post(self, exchange: Exchange, wait_s: float) -> Found:
        wire: Wire | None = getattr(self._wires, "wire", None)
        if wire is None:
            wire = self._wires.wire = Wire(self._place.url, self._place.token)
            self._open.append(wire)
        message = {**to_json(exchange), "store": self._store, "wait_s": wait_s}
        answer = wire.post(STORE, message, timeout_s=wait_s + PATIENCE_S)
        try:
            found = Found(**answer)
        except TypeError:
            raise WireError(f"no answer of a store: {answer}"[:200]) from None
        self._store = self._store or found.store
        return found


def _bytes(value: Text) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _check(keys: list[str], values: list[bytes]) -> None:
    for key in keys:
        if not 0 < len(key) <= LONGEST_KEY:
            raise DistStoreError(f"a key has 1 to {LONGEST_KEY} characters, not {len(key)}")
    for value in values:
        if len(value) > LARGEST_VALUE:
            raise DistStoreError(
                f"a value of {len(value)} bytes is larger than {LARGEST_VALUE // 1024} KiB; share "
                "large data in files or with collectives"
            )


def _raise_absent(exchange: Exchange, timeout: timedelta) -> NoReturn:
    keys = ", ".join(exchange.keys[:5])
    milliseconds = round(timeout.total_seconds() * 1000)
    raise DistStoreError(f"wait timeout after {milliseconds}ms, keys: {keys}")
