"""TrainingJob objects in memory, for tests of stores. It fails on demand."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection, Mapping
from typing import Any

from rota.core.model.job import JobId
from rota.errors import UnavailableError, WriteRejectedError
from rota.kube.errors import NotStoredYetError
from rota.store.kubernetes.crd_codec import FINALIZER, JOB

Object = dict[str, Any]


class FakeObjectApi:
    """Satisfies `rota.store.kubernetes.api_port.TrainingJobPort`.

    It is unavailable after `writes_left` writes. It rejects objects named in `refuses`, and every
    status of objects named in `mute`."""

    def __init__(
        self, *, writes_left: int | None = None, refuses: Collection[str] = frozenset()
    ) -> None:
        self.refuses = refuses
        self.found: dict[str, Object] = {}
        self.kept: dict[str, str] = {}
        self.mute: set[str] = set()
        self.webhook_down: set[str] = set()
        """Objects whose status a failing webhook has to admit."""
        self.writes_left = writes_left
        self.written: list[str] = []

    async def all(self) -> list[Object]:
        return copy.deepcopy(list(self.found.values()))

    async def create(self, body: Object) -> bool:
        name = body["metadata"]["name"]
        await self._write(f"create {name}")
        if name in self.found:
            return (
                self.found[name]["metadata"].get("annotations") == body["metadata"]["annotations"]
            )
        if name in self.refuses:
            raise WriteRejectedError("the cluster does not keep it: exceeded quota")
        self.found[name] = copy.deepcopy(body)
        return True

    async def adopt(self, name: str, job_id: JobId) -> bool:
        await self._write(f"adopt {name}")
        if name in self.found:
            meta = self.found[name]["metadata"]
            meta["labels"] = {**meta.get("labels", {}), JOB: job_id}
            meta["finalizers"] = [FINALIZER]
        return name in self.found

    async def update(self, name: str, status: Object) -> bool:
        await self._write(f"update {name}")
        if name in self.webhook_down:
            raise NotStoredYetError("failed calling webhook")
        if name in self.mute:
            raise WriteRejectedError("the cluster does not keep its status: not in this lab")
        if name in self.found:
            self.found[name]["status"] = copy.deepcopy(status)
        return name in self.found

    async def report_refusal(self, name: str, words: str) -> None:
        await self._write(f"complain {name}: {words}")

    async def wait_idle(self) -> None:
        pass

    async def remove_finalizer(self, name: str) -> None:
        await self._write(f"let go {name}")
        self.found.pop(name, None)

    async def remove(self, name: str) -> None:
        await self._write(f"remove {name}")
        self.found.pop(name, None)

    async def check(self) -> None:
        self._require_reach()

    async def rows(self) -> dict[str, str]:
        self._require_reach()
        return dict(self.kept)

    async def put_rows(self, rows: Mapping[str, str | None]) -> None:
        await self._write("keep")
        for name, text in rows.items():
            self.kept.pop(name, None)
            if text is not None:
                self.kept[name] = text

    async def _write(self, deed: str) -> None:
        await asyncio.sleep(0)
        self._require_reach()
        if self.writes_left is not None:
            self.writes_left -= 1
        self.written.append(deed)

    def _require_reach(self) -> None:
        if self.writes_left == 0:
            raise UnavailableError("the cluster does not answer")
