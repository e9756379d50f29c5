"""Carries jobs to other daemons, for `rota.daemon.moves`: as a client of theirs, with the token
that the job's owner gave for this."""

from __future__ import annotations

from rota.client import Client
from rota.client.find import Door
from rota.client.moving import hand_over, let_go, take_back
from rota.daemon.move_files import Target
from rota.daemon.move_plans import is_link_local
from rota.wire.moves import Parcel


class HttpCarrier:
    """Satisfies `rota.daemon.moves.Carrier`. All of it blocks."""

    def hand_over(self, target: Target, parcel: Parcel) -> str:
        with _client(target) as there:
            return hand_over(there, parcel)

    def let_go(self, target: Target, job_id: str) -> None:
        with _client(target) as there:
            let_go(there, job_id)

    def take_back(self, target: Target, job_id: str, *, reason: str) -> None:
        with _client(target) as there:
            take_back(there, job_id, reason=reason)


def _client(target: Target) -> Client:
    return Client(Door(url=target.url, refuses=is_link_local), token=target.token)
