"""Metrics for Prometheus. No authentication: the metrics name no job and no user."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from rota.api.responses import ServicesDep
from rota.api.router import LazyRouter
from rota.core.lifecycle.states import JobState
from rota.daemon.cluster_service import RoundStats
from rota.wire.daemon import Status

router = LazyRouter(tags=["daemon"])


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(services: ServicesDep) -> Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        _MetricsCollector(services.cluster_service.status(), services.cluster_service.round_stats())
    )
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _MetricsCollector(Collector):
    def __init__(self, status: Status, rounds: RoundStats) -> None:
        self._status = status
        self._rounds = rounds

    def collect(self) -> Iterable[Metric]:
        status = self._status
        jobs = GaugeMetricFamily("rota_jobs", "Jobs that are not over, by state", labels=["state"])
        for state in JobState:
            if not state.is_final:
                jobs.add_metric([state.value], status.jobs.get(state.value, 0))
        yield jobs
        yield GaugeMetricFamily("rota_gpus", "Usable GPUs", status.gpus)
        yield GaugeMetricFamily("rota_gpus_held", "GPUs held by jobs", status.gpus_held)
        yield CounterMetricFamily(
            "rota_rounds", "Scheduling rounds since the start", self._rounds.count
        )
        yield GaugeMetricFamily(
            "rota_round_seconds", "Duration of the last scheduling round", self._rounds.last_s
        )
        trouble = 1 if status.trouble else 0
        yield GaugeMetricFamily("rota_store_failed", "1 while the store cannot be written", trouble)
