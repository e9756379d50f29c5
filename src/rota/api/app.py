"""Puts the routes together. Everything that is asked ends at the desk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

import rota
from rota.api import (
    box,
    jobs,
    metrics,
    people,
    problems,
    rendezvous,
    sessions,
    snapshots,
    streams,
    training,
)
from rota.api.auth import Doorkeeper
from rota.api.bounds import Bounded
from rota.api.server import Patience
from rota.daemon.desk import Desk
from rota.daemon.machine import Machine
from rota.daemon.moves import Moves
from rota.daemon.rendezvous import Rendezvous
from rota.daemon.tokens import Tokens
from rota.daemon.training import Training
from rota.daemon.visits import Visits

DESCRIPTION = "Shares a lab's GPUs between the people who train on them."
STREAMS = "/v1/blobs/"


@dataclass(frozen=True, slots=True)
class House:
    """What the routes reach."""

    desk: Desk
    machine: Machine
    tokens: Tokens
    doorkeeper: Doorkeeper
    visits: Visits
    training: Training
    rendezvous: Rendezvous
    moves: Moves
    patience: Patience
    n_streams: Counter[str] = field(default_factory=Counter[str])
    """How many each user reads at the moment."""


def create(house: House) -> Any:
    app = _app()
    app.state.house = house
    app.state.doorkeeper = house.doorkeeper
    return Bounded(app, doorkeeper=house.doorkeeper, patience=house.patience, streams=STREAMS)


def description() -> dict[str, Any]:
    """What can be asked, as OpenAPI."""
    return _app().openapi()


def _app() -> FastAPI:
    app = FastAPI(
        title="rota",
        version=rota.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
    )
    # The first is found first, and what every worker asks once a second should be.
    rooms = (training, rendezvous, jobs, streams, sessions, snapshots, box, people, metrics)
    for room in rooms:
        app.include_router(room.router)
    problems.install(app)
    return app
