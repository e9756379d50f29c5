"""Sends jobs to other daemons for the migrator, as a client with the token of the job's owner."""

from __future__ import annotations

from rota.client import Client
from rota.client.endpoint import Endpoint
from rota.client.migration import cancel_moved_job, hand_over, release_moved_job
from rota.daemon.migration.requests import MigrationTarget, is_link_local
from rota.wire.moves import JobTransfer

ANSWER_BYTES_MAX = 4 * 1024**2
"""The largest answer of a daemon that gets a job is the list of missing files: 20,000 hashes. Any
user may name a target, which may send anything."""


class HttpMigrationTransport:
    """Satisfies `rota.daemon.migration.migrator.MoveTransport`. All methods block."""

    def hand_over(self, target: MigrationTarget, transfer: JobTransfer) -> str:
        with _client(target) as there:
            return hand_over(there, transfer)

    def let_go(self, target: MigrationTarget, job_id: str) -> None:
        with _client(target) as there:
            release_moved_job(there, job_id)

    def take_back(self, target: MigrationTarget, job_id: str, *, reason: str) -> None:
        with _client(target) as there:
            cancel_moved_job(there, job_id, reason=reason)


def _client(target: MigrationTarget) -> Client:
    endpoint = Endpoint(
        url=target.url, allows_plain_http=target.allows_plain_http, refuses=is_link_local
    )
    return Client(endpoint, token=target.token, answer_bytes=ANSWER_BYTES_MAX)
