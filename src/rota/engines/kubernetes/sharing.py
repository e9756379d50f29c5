"""Cards that several workers share. One pod of ours asks for the card, so that nobody else is
given it, and says which one it got; the sharers are told, and ask for none.

The placeholder goes when the last sharer is gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import PODS, Cluster, Object
from rota.engines.kubernetes.bodies import KILL_GRACE_S, Body, Stage, stage_of
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.endings import Trouble, trouble_of
from rota.engines.kubernetes.manifests import Seat
from rota.engines.kubernetes.objects import part
from rota.engines.kubernetes.placeholders import Place, place_of, placeholder
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.watch import insist
from rota.errors import UnavailableError

ANSWER_S = 30.0


class CardError(UnavailableError):
    """The card could not be had: somebody else was faster, or it does not say its name."""


@dataclass(slots=True)
class Card:
    name: str
    uid: str = ""
    uuid: str = ""
    is_running: bool = False
    trouble: Trouble | None = None


class Cards:
    def __init__(self, cluster: Cluster, settings: KubernetesSettings, *, crew: Crew) -> None:
        self._cluster, self._settings, self._crew = cluster, settings, crew
        self._cards: dict[Place, Card] = {}
        self._wanted: Counter[Place] = Counter()
        self._changed = asyncio.Event()

    # -- what is seen ---------------------------------------------------------------------------

    def see(self, pod: Object) -> list[WorkerId]:
        """Who shares a card that nobody holds for them any more, if this says so."""
        place, meta = place_of(pod), pod["metadata"]
        if stage_of(pod) is Stage.OVER or "deletionTimestamp" in meta:
            return self.vanish(pod)
        if place is None:
            return []
        card = self._cards.setdefault(place, Card(meta["name"]))
        if card.name == meta["name"]:
            card.uid = meta["uid"]
            card.uuid = part(meta, "annotations").get(names.CARD, "") or card.uuid
            card.is_running = stage_of(pod) is Stage.RUNNING
            card.trouble = trouble_of(pod)
        self._tell()
        return []

    def vanish(self, pod: Object) -> list[WorkerId]:
        name = pod["metadata"]["name"]
        place = next((each for each, card in self._cards.items() if card.name == name), None)
        if place is None:
            return []
        del self._cards[place]
        self._tell()
        return [body.worker for body in self._sharers(place) if body.node]

    def unused(self) -> list[Place]:
        """Cards that are held for nobody."""
        return [
            place for place in self._cards if not self._wanted[place] and not self._sharers(place)
        ]

    # -- what is asked --------------------------------------------------------------------------

    async def hold(self, seat: Seat) -> str:
        """The name of the card that a sharer is to use, held from now on."""
        place = seat.slot.node, seat.slot.gpus[0]
        self._wanted[place] += 1
        try:
            async with asyncio.timeout(self._settings.bind_patience_s + ANSWER_S):
                return await self._hold(place, seat.worker)
        except TimeoutError:
            card = self._cards.get(place)
            why = card.trouble.words if card and card.trouble else "it does not say which it is"
            raise CardError(f"card {place[1]} of {place[0]} cannot be shared: {why}") from None
        finally:
            self._wanted[place] -= 1

    async def let_go(self, place: Place) -> None:
        card = self._cards.pop(place, None)
        if card is None:
            return
        delete = partial(self._cluster.delete, PODS, card.name, grace_s=KILL_GRACE_S, uid=card.uid)
        await insist(delete, what=card.name)

    async def _hold(self, place: Place, worker: WorkerId) -> str:
        if place not in self._cards:
            self._cards[place] = Card(names.placeholder_name(worker))
            await insist(partial(self._make, place, worker), what=f"card of {place[0]}")
        while True:
            card = self._cards.get(place)
            if card is None:
                raise CardError(f"card {place[1]} of {place[0]} is not held any more")
            if card.is_running and not card.uuid:
                await insist(partial(self._learn, card), what=card.name)
            if card.uuid:
                return card.uuid
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
        _, _, name = said.split(b"\n")[0].decode(errors="replace").partition(" ")
        card.uuid = name.strip()
        notes = {"metadata": {"annotations": {names.CARD: card.uuid}}}
        await self._cluster.amend(PODS, card.name, body=notes)

    def _sharers(self, place: Place) -> list[Body]:
        node, index = place
        alive = self._crew.alive_on(node)
        return [body for body in alive if body.share_bytes and index in body.gpus]

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
