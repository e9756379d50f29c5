"""A torch `Store` at the daemon: keys and values that the agents of one round share."""

from __future__ import annotations

import itertools
import random
import threading
import time
from base64 import b64decode, b64encode
from collections import deque
from datetime import timedelta
from typing import Any, NoReturn, Union

from torch.distributed import (
    DistNetworkError,
    DistStoreError,
    Store,  # pyright: ignore[reportPrivateImportUsage]
)

from rota_trainer.reporting.environment import WorkerEnvironment
from rota_trainer.reporting.http import RESPONSE_MARGIN_S, DaemonConnection, DaemonRequestError
from rota_trainer.reporting.messages import to_json
from rota_trainer.torchrun.messages import (
    ABSENT,
    BROKEN,
    DONE,
    LARGEST_VALUE,
    LONGEST_KEY,
    LONGEST_WAIT_S,
    MOVED,
    STORE,
    RendezvousAssignment,
    StoreRequest,
    StoreResponse,
)

RETRY_S = 0.2

Text = Union[str, bytes]


class RendezvousBrokenError(RuntimeError):
    """The members of the round change: waiting for the other agents of this round is useless."""


class RotaStore(Store):
    """Waits up to `timeout` for missing keys, and for an unreachable daemon. If the daemon was
    restarted, the store writes this agent's keys again, because the daemon keeps them in memory."""

    def __init__(self, environment: WorkerEnvironment, assignment: RendezvousAssignment) -> None:
        super().__init__()
        self._environment = environment
        self._assignment = assignment
        self._connections = threading.local()
        self._open: list[DaemonConnection] = []
        self._changing = threading.Lock()
        self._restoring = threading.Lock()
        self._sequence = itertools.count(random.getrandbits(48))
        self._store = ""
        self._values: dict[str, bytes] = {}
        self._sums: dict[str, int] = {}
        """The values that this agent has set, and the sums that it has added."""
        self._restored_to = ""
        self._unsent: deque[StoreRequest] = deque()
        """The store of a restarted daemon, and the changes that it does not have yet."""

    def close(self) -> None:
        """Close the connections; a later request opens a new one."""
        for connection in self._open:
            connection.close()

    # -- interface of torch ---------------------------------------------------------------------

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
        found = self._send(self._request("get", keys), self._limit)
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
        self._send(self._request("wait", keys), timeout or self._limit)

    def check(self, keys: list[str]) -> bool:
        return bool(self._send(self._request("check", keys), self._limit).number)

    def delete_key(self, key: str) -> bool:
        found = self._change("delete", [key])
        self._values.pop(key, None)
        self._sums.pop(key, None)
        return bool(found.number)

    def num_keys(self) -> int:
        return self._send(self._request("count", []), self._limit).number

    # PrefixStore calls these two by their C++ names.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    @property
    def _limit(self) -> timedelta:
        """The timeout that was set with torch's `set_timeout`."""
        own: Any = self
        return own.timeout

    # -- requests -------------------------------------------------------------------------------

    def _request(
        self,
        deed: str,
        keys: list[str],
        *,
        values: list[bytes] | None = None,
        amount: int = 0,
    ) -> StoreRequest:
        _check(keys, values or [])
        return StoreRequest(
            self._environment.worker,
            self._assignment.generation,
            self._assignment.turn,
            deed,
            list(keys),
            [b64encode(value).decode() for value in values or []],
            amount,
            next(self._sequence),
        )

    def _change(self, deed: str, keys: list[str], **more: Any) -> StoreResponse:
        """Send one change at a time: the daemon detects repeats by the newest sequence number."""
        with self._changing:
            return self._send(self._request(deed, keys, **more), self._limit)

    def _send(self, request: StoreRequest, timeout: timedelta) -> StoreResponse:
        until = time.monotonic() + timeout.total_seconds()
        while True:
            left_s = max(0.0, until - time.monotonic())
            try:
                found = self._post(request, min(left_s, LONGEST_WAIT_S))
                if found.state == MOVED:
                    self._restore_keys(found.store)
                    continue
            except DaemonRequestError as error:
                if error.is_final or error.is_refusal or left_s <= 0:
                    raise DistNetworkError(f"rota store: {error.why}") from None
                time.sleep(min(RETRY_S, left_s))
                continue
            if found.state == BROKEN:
                raise RendezvousBrokenError("the members of this job changed")
            if found.state != ABSENT:
                return found
            if left_s <= 0:
                _raise_absent(request, timeout)

    def _restore_keys(self, store: str) -> None:
        """Write this agent's keys to a new store, once for all threads that notice it. If a request
        fails, the next call repeats that request: the daemon applies no change twice."""
        with self._restoring:
            if self._store == store:
                return
            if self._restored_to != store:
                self._restored_to, self._unsent = store, self._own_changes()
            while self._unsent:
                if self._post(self._unsent[0], 0.0, store=store).state != DONE:
                    return  # The store or the members changed again, as the next response says.
                self._unsent.popleft()
            self._store = store

    def _own_changes(self) -> deque[StoreRequest]:
        changes = deque(
            self._request("set", [key], values=[value]) for key, value in list(self._values.items())
        )
        changes.extend(
            self._request("add", [key], amount=amount) for key, amount in list(self._sums.items())
        )
        return changes

    def _post(self, request: StoreRequest, wait_s: float, *, store: str = "") -> StoreResponse:
        connection: DaemonConnection | None = getattr(self._connections, "connection", None)
        if connection is None:
            connection = self._connections.connection = DaemonConnection(
                self._environment.url, self._environment.token
            )
            self._open.append(connection)
        message = {**to_json(request), "store": store or self._store, "wait_s": wait_s}
        answer = connection.post(STORE, message, timeout_s=wait_s + RESPONSE_MARGIN_S)
        try:
            found = StoreResponse(**answer)
        except TypeError:
            raise DaemonRequestError(f"invalid store response: {answer}"[:200]) from None
        self._store = self._store or found.store
        return found


def _bytes(value: Text) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _check(keys: list[str], values: list[bytes]) -> None:
    for key in keys:
        if not 0 < len(key) <= LONGEST_KEY:
            raise DistStoreError(f"a key must have 1 to {LONGEST_KEY} characters, not {len(key)}")
    for value in values:
        if len(value) > LARGEST_VALUE:
            raise DistStoreError(
                f"a value of {len(value)} bytes is larger than {LARGEST_VALUE // 1024} KiB; share "
                "large data in files or with collectives"
            )


def _raise_absent(request: StoreRequest, timeout: timedelta) -> NoReturn:
    keys = ", ".join(request.keys[:5])
    milliseconds = round(timeout.total_seconds() * 1000)
    raise DistStoreError(f"wait timeout after {milliseconds}ms, keys: {keys}")
