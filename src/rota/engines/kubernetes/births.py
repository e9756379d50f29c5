"""How workers come to be: all pods of an order are made, gated; when all are there, the gates
open. What the cluster refuses is taken back as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import PODS, ApiError, Cluster, Object
from rota.engines.kubernetes.bodies import Body, Stage
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.endings import CANNOT_RUN, Ending, Trouble
from rota.engines.kubernetes.manifests import Seat, opened
from rota.engines.kubernetes.sharing import CardError, Cards
from rota.engines.kubernetes.transport import NOT_FOUND
from rota.engines.kubernetes.vigil import verdict
from rota.engines.kubernetes.watch import Care, insist

QUOTA = "exceeded quota"
"""What an API server says of a namespace that has used up what it may."""
ORDERS_AT_ONCE = 32
"""So that the first to come are running while the last are still being made."""


@dataclass(frozen=True, slots=True)
class Registrar:
    """Who is told of births: `see` is shown what the cluster answered, `hinder` told what keeps
    a worker from being, or that nothing is known to; `give_up` takes the verdict on one that
    cannot be, and sees to its end."""

    see: Callable[[Object], None]
    hinder: Callable[[WorkerId, Trouble | None], None]
    give_up: Callable[[WorkerId, Ending], None]


class Births:
    def __init__(self, cluster: Cluster, crew: Crew, *, cards: Cards, registrar: Registrar) -> None:
        self._cluster, self._crew, self._cards = cluster, crew, cards
        self._registrar = registrar
        self._room = asyncio.Semaphore(ORDERS_AT_ONCE)
        self.coming: dict[WorkerId, Seat] = {}
        """Those that are on their way."""
        self._changed: dict[WorkerId, asyncio.Event] = {}

    def notice(self, worker: WorkerId) -> None:
        """Something about it has changed."""
        if event := self._changed.pop(worker, None):
            event.set()

    async def bring_up(self, pods: Sequence[tuple[Seat, Object]], *, master: WorkerId) -> None:
        """All that are not there yet; who is on the way already is left to whoever brings it."""
        coming = [(seat, pod) for seat, pod in pods if seat.worker not in self.coming]
        seats = [seat for seat, _ in coming]
        self.coming |= {seat.worker: seat for seat in seats}
        first = [seat for seat in seats if seat.rank == 0]
        others = [seat for seat in seats if seat.rank != 0]
        try:
            async with self._room:
                if not await self._make_all(coming):
                    return
                await asyncio.gather(*(self._open(seat) for seat in first))
            if others:
                await self._open_all(others, master=master)
        finally:
            for seat in seats:
                del self.coming[seat.worker]

    # -- made -----------------------------------------------------------------------------------

    async def _make_all(self, pods: Sequence[tuple[Seat, Object]]) -> bool:
        answers = await asyncio.gather(*(self._make(seat, pod) for seat, pod in pods))
        refused = [each for each in answers if each is not None]
        for seat, _ in pods if refused else ():
            self._registrar.give_up(
                seat.worker, _refusal(refused[0], is_newcomer=seat.generation > 0)
            )
        return not refused

    async def _make(self, seat: Seat, pod: Object) -> ApiError | None:
        if seat.worker in self._crew.bodies or not self._is_wanted(seat.worker):
            return None
        try:
            await self._insist(
                partial(self._apply, seat.worker, pod), seat.worker, what=pod["metadata"]["name"]
            )
        except ApiError as error:
            return error
        return None

    async def _apply(self, worker: WorkerId, pod: Object) -> None:
        if not self._is_wanted(worker):
            return
        try:
            self._registrar.see(await self._cluster.apply(PODS, pod))
        except ApiError as error:
            if error.reason != "Invalid" or not await self._is_made(worker, pod):
                raise

    async def _is_made(self, worker: WorkerId, pod: Object) -> bool:
        """What somebody made who commanded before us cannot be made otherwise: it is taken."""
        try:
            self._registrar.see(await self._cluster.get(PODS, pod["metadata"]["name"]))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        return worker in self._crew.bodies

    # -- opened ---------------------------------------------------------------------------------

    async def _open_all(self, seats: Sequence[Seat], *, master: WorkerId) -> None:
        """They are told the address of rank 0, which it has only when it runs."""
        address = await self._address_of(master)
        async with self._room:
            await asyncio.gather(*(self._open(seat, master=address) for seat in seats))

    async def _open(self, seat: Seat, *, master: str = "") -> None:
        body = self._crew.bodies.get(seat.worker)
        if body is None or body.stage is not Stage.GATED or not self._is_wanted(seat.worker):
            return
        notes = {names.MASTER_ADDRESS: master} if master else {}
        try:
            if seat.slot.share_bytes:
                notes[names.CARD] = await self._cards.hold(seat)
            patch = opened(seat.slot, uid=body.uid, notes=notes)
            await self._insist(partial(self._patch, body, patch), body.worker, what=body.name)
        except (CardError, ApiError) as error:
            self._registrar.give_up(seat.worker, _shut_out(error))

    async def _patch(self, body: Body, patch: Object) -> None:
        if self._is_wanted(body.worker):
            await self._cluster.amend(PODS, body.name, body=patch)

    async def _address_of(self, worker: WorkerId) -> str:
        """Empty if it will never have one."""
        while self._is_wanted(worker):
            body = self._crew.bodies.get(worker)
            if body is not None and body.ip:
                return body.ip
            await self._changed.setdefault(worker, asyncio.Event()).wait()
        return ""

    async def _insist(self, care: Care, worker: WorkerId, *, what: str) -> None:
        await insist(care, what=what, hear=partial(self._hear, worker))

    def _hear(self, worker: WorkerId, error: ApiError) -> None:
        """A cluster that is away is waited for. One that is there, and cannot admit a pod because
        of something else that is not, may stay like that for as long as nobody looks."""
        if self._is_wanted(worker):
            trouble = Trouble(str(error), is_outage=True) if error.is_outage else None
            self._registrar.hinder(worker, trouble)

    def _is_wanted(self, worker: WorkerId) -> bool:
        return worker not in self._crew.endings and not self._crew.is_to_end(worker)


def _refusal(error: ApiError, *, is_newcomer: bool) -> Ending:
    """A quota may have room again: a job waits for that, however long, and one that has workers
    does without more of them for a while. What else is not admitted will not be the next time."""
    is_full = QUOTA in error.message
    if is_full and not is_newcomer:
        return Ending(-1, str(error), is_lost=True)
    return Ending(CANNOT_RUN, str(error), is_retriable=is_full)


def _shut_out(error: CardError | ApiError) -> Ending:
    """Of a pod that could not be let go to its node."""
    trouble = error.trouble if isinstance(error, CardError) else None
    words = f"its pod could not be let go to its node: {error}"
    if trouble is None:
        return Ending(-1, words, is_lost=True)
    return verdict(replace(trouble, words=words))
