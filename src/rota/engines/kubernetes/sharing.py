"""Cards that several workers share. One pod of ours asks for the card, so that nobody else is
given it, and says which one it got; the sharers are told, and ask for none.

The placeholder goes when the last sharer is gone.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import PODS, ApiError, Cluster, Object
from rota.engines.kubernetes.bodies import KILL_GRACE_S, Body, Stage, stage_of
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.endings import Trouble
from rota.engines.kubernetes.manifests import Seat
from rota.engines.kubernetes.objects import part
from rota.engines.kubernetes.placeholders import (
    Place,
    card_in,
    place_of,
    placeholder,
    trouble_with,
)
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.watch import insist
from rota.errors import UnavailableError

ANSWER_S = 30.0


class CardError(UnavailableError):
    """The card could not be had: somebody else was faster, or the pod that is to hold it is in
    trouble."""

    def __init__(self, words: str, trouble: Trouble | None = None) -> None:
        super().__init__(words)
        self.trouble = trouble


@dataclass(slots=True)
class Card:
    name: str
    uid: str = ""
    uuid: str = ""
    is_running: bool = False
    trouble: Trouble | None = None

    def see_trouble(self, now: Trouble | None) -> None:
        """What ends its pod again and again is not over while that starts once more."""
        if now is not None or (self.trouble is not None and self.trouble.is_nobodys):
            self.trouble = now

    def hear(self, error: ApiError) -> None:
        """Its pod could not be made yet."""
        self.see_trouble(Trouble(str(error), is_outage=True) if error.is_outage else None)


class Cards:
    def __init__(self, cluster: Cluster, settings: KubernetesSettings, *, crew: Crew) -> None:
        self._cluster, self._settings, self._crew = cluster, settings, crew
        self._cards: dict[Place, Card] = {}
        self._spent: list[Card] = []
        """Held by pods that are over: a node may have put them out."""
        self._waiting: dict[WorkerId, Place] = {}
        """Those who have asked for a card, and not been told its name yet."""
        self._told: set[WorkerId] = set()
        self._changed = asyncio.Event()

    # -- what is seen ---------------------------------------------------------------------------

    def see(self, pod: Object) -> list[WorkerId]:
        """Who shares a card that nobody holds for them any more, if this says so."""
        place, meta = place_of(pod), pod["metadata"]
        if "deletionTimestamp" in meta:
            return self.vanish(pod)
        if stage_of(pod) is Stage.OVER:
            self._spent.append(Card(meta["name"], meta["uid"]))
            return self.vanish(pod)
        if place is None:
            return []
        card = self._cards.setdefault(place, Card(meta["name"]))
        if card.name == meta["name"]:
            card.uid = meta["uid"]
            # What was heard first counts: somebody may have edited it since.
            card.uuid = card.uuid or part(meta, "annotations").get(names.CARD, "")
            card.is_running = stage_of(pod) is Stage.RUNNING
            card.see_trouble(trouble_with(pod))
        self._tell()
        return []

    def vanish(self, pod: Object) -> list[WorkerId]:
        name = pod["metadata"]["name"]
        place = next((each for each, card in self._cards.items() if card.name == name), None)
        if place is None:
            return []
        del self._cards[place]
        self._tell()
        return self._robbed(place)

    def robbed(self) -> list[WorkerId]:
        """Who shares a card that nobody holds for them, however that came about."""
        alive = self._crew.alive()
        places = {(body.node or body.planned, body.gpus[0]) for body in alive if _is_sharer(body)}
        return [worker for place in places - self._cards.keys() for worker in self._robbed(place)]

    def look_again(self) -> None:
        """Whoever waits for a card may not want it any more."""
        self._tell()

    def left(self) -> list[Card]:
        """Those that are held for nobody, from now on no cards of ours."""
        wanted = set(self._waiting.values())
        unused = [
            place for place in self._cards if place not in wanted and not self._sharers(place)
        ]
        found = [*self._spent, *(self._cards.pop(place) for place in unused)]
        self._spent = []
        return found

    def untold(self) -> dict[WorkerId, str]:
        """What may last and keeps a card from being held, for the owners of those who wait for it
        to know of meanwhile. Each is told once."""
        found: dict[WorkerId, str] = {}
        for worker, place in self._waiting.items():
            card = self._cards.get(place)
            if card and card.trouble and not card.trouble.is_race and worker not in self._told:
                found[worker] = _not_shared(place, card.trouble.words)
        self._told |= found.keys()
        return found

    # -- what is asked --------------------------------------------------------------------------

    async def hold(self, seat: Seat) -> str:
        """The name of the card that a sharer is to use, held from now on."""
        place = seat.slot.node, seat.slot.gpus[0]
        self._waiting[seat.worker] = place
        try:
            return await self._hold(place, seat.worker)
        finally:
            del self._waiting[seat.worker]
            self._told.discard(seat.worker)

    async def let_go(self, card: Card) -> None:
        delete = partial(self._cluster.delete, PODS, card.name, grace_s=KILL_GRACE_S, uid=card.uid)
        await insist(delete, what=card.name)

    async def _hold(self, place: Place, worker: WorkerId) -> str:
        card = self._cards.get(place)
        is_new = card is None
        card = card or self._cards.setdefault(place, Card(names.placeholder_name(worker)))
        try:
            async with asyncio.timeout(self._settings.bind_patience_s + ANSWER_S) as limit:
                if is_new:
                    make = partial(self._make, place, worker)
                    await insist(make, what=f"card of {place[0]}", hear=card.hear)
                return await self._name_of(card, place, worker=worker, limit=limit)
        except ApiError as error:
            if not card.uid and self._cards.get(place) is card:
                # Nobody else who waits for it will have it made, either.
                card.trouble = Trouble(str(error), is_outage=True)
                del self._cards[place]
                self._tell()
            raise
        except TimeoutError:
            if card.trouble is not None and self._cards.get(place) is card:
                # Of no use to those who come next, either: a setting may be another one by then.
                del self._cards[place]
                await self.let_go(card)
            raise _not_to_be_had(card, place, otherwise="it does not say its card") from None

    async def _name_of(
        self, card: Card, place: Place, *, worker: WorkerId, limit: asyncio.Timeout
    ) -> str:
        is_warned = False
        while True:
            if self._cards.get(place) is not card:
                raise _not_to_be_had(card, place, otherwise="it is not held any more")
            if card.is_running and not card.uuid:
                await insist(partial(self._learn, card), what=card.name)
            if card.uuid or self._crew.is_to_end(worker):
                return card.uuid
            if card.trouble and not card.trouble.is_race and not is_warned:
                is_warned = True
                limit.reschedule(asyncio.get_running_loop().time() + self._settings.stuck_after_s)
            await self._changed.wait()

    async def _make(self, place: Place, worker: WorkerId) -> None:
        body = placeholder(place, worker, settings=self._settings)
        self.see(await self._cluster.apply(PODS, body))

    async def _learn(self, card: Card) -> None:
        """Its first line says it. Kept on the pod, for whoever comes after us."""
        said = b""
        async with aclosing(self._cluster.pod_log(card.name, follow=True)) as chunks:
            async for chunk in chunks:
                said += chunk
                if b"\n" in said:
                    break
        _, _, line = said.split(b"\n")[0].decode(errors="replace").partition(" ")
        found = card_in(line)
        if isinstance(found, Trouble):
            # One that could not even begin says nothing; what is known of it by then says more.
            card.trouble = found if said or card.trouble is None else card.trouble
            return
        card.uuid, card.trouble = found, None
        notes = {"metadata": {"annotations": {names.CARD: card.uuid}}}
        await self._cluster.amend(PODS, card.name, body=notes)

    def _sharers(self, place: Place) -> list[Body]:
        node, index = place
        alive = self._crew.alive_on(node)
        return [body for body in alive if _is_sharer(body) and index in body.gpus]

    def _robbed(self, place: Place) -> list[WorkerId]:
        """One that waits behind its gate is told when it asks for the card."""
        return [body.worker for body in self._sharers(place) if body.stage is not Stage.GATED]

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _not_to_be_had(card: Card, place: Place, *, otherwise: str) -> CardError:
    why = card.trouble.words if card.trouble else otherwise
    return CardError(_not_shared(place, why), card.trouble)


def _not_shared(place: Place, why: str) -> str:
    node, index = place
    return f"card {index} of {node} cannot be shared: of the pod that is to hold it: {why}"


def _is_sharer(body: Body) -> bool:
    return bool(body.share_bytes and body.gpus)
