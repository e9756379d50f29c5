"""`rota list` fetches all pages that it needs, and counts what it does not show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rota.wire.jobs import FINAL_STATES, JobList
from tests.golden.fake_client import FAILED, QUEUED, FakeClient
from tests.unit.cli.conftest import Rota

LIVE = [replace(QUEUED, id=f"live-{n}") for n in range(1200)]
ENDED = [replace(FAILED, id=f"ended-{n}") for n in range(1300)]


class Large(FakeClient):
    """Answers as the daemon: not ended jobs first, then pages of ended jobs."""

    def jobs(self, **asked: Any) -> JobList:
        limit, before = asked["limit"], asked["before"]
        assert limit <= 1000
        if before is not None:
            assert set(asked["states"]) <= set(FINAL_STATES)
            page = ENDED[before : before + limit]
            return JobList(page, before + limit if before + limit < len(ENDED) else None)
        live = LIVE[asked["skip"] : asked["skip"] + limit]
        ended = ENDED[: limit - len(live)]
        more = len(LIVE) + len(ENDED) - asked["skip"] - len(live) - len(ended)
        return JobList([*live, *ended], len(ended) if ended else None, more)


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.client.Client", Large)


@pytest.mark.parametrize("limit", [10, 1000, 1199, 1200, 1201, 2300, 2500, 3000])
def test_pages(rota: Rota, limit: int):
    result = rota("list", "--json", "--limit", str(limit))
    expected = [job.id for job in [*LIVE, *ENDED]][:limit]
    assert [each["id"] for each in json.loads(result.out)] == expected
    left = max(0, 2500 - limit)
    what = f"{left} more jobs are not shown; 'rota list --limit 2500' shows all"
    assert result.err == (f"rota: {what}\n" if left else "")


@pytest.mark.parametrize("states", ["running,queued", "running, queued,"])
def test_several_states_in_one_word(rota: Rota, monkeypatch: pytest.MonkeyPatch, states: str):
    asked: list[list[str]] = []

    class Filtered(FakeClient):
        def jobs(self, **query: Any) -> JobList:
            asked.append(query["states"])
            return JobList([])

    monkeypatch.setattr("rota.client.Client", Filtered)
    assert rota("list", "--all", "--state", states).code == 0
    assert asked == [["running", "queued"]]
