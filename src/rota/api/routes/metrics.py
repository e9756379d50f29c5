"""Figures for Prometheus. Anybody may read them: they name no job and no person."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from rota.api.answers import Reaches
from rota.core.states import State
from rota.wire.box import Status

router = APIRouter(tags=["box"])


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
async def metrics(house: Reaches) -> Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        _Figures(
            house.machine.status(), house.desk.shell.rounds.count, house.desk.shell.rounds.last_s
        )
    )
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Figures(Collector):
    def __init__(self, status: Status, n_rounds: int, round_s: float) -> None:
        self._status = status
        self._n_rounds = n_rounds
        self._round_s = round_s

    def collect(self) -> Iterable[Metric]:
        status = self._status
        jobs = GaugeMetricFamily("rota_jobs", "Jobs that are not over, by state", labels=["state"])
        for state in State:
            if not state.is_final:
                jobs.add_metric([state.value], status.jobs.get(state.value, 0))
        yield jobs
        yield GaugeMetricFamily("rota_gpus", "GPUs that can be used", status.gpus)
        yield GaugeMetricFamily("rota_gpus_held", "GPUs that jobs hold", status.gpus_held)
        yield CounterMetricFamily("rota_rounds", "Decisions since the start", self._n_rounds)
        yield GaugeMetricFamily("rota_round_seconds", "The newest decision", self._round_s)
        trouble = 1 if status.trouble else 0
        yield GaugeMetricFamily("rota_store_failed", "1 while nothing can be written", trouble)
