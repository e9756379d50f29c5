"""Output of `rota submit --dry-run`."""

# ruff: noqa: E501 - a line is as wide as it is
from __future__ import annotations

from inline_snapshot import snapshot

from tests.golden.conftest import Rota


def test_dry_run(rota: Rota):
    assert rota("submit", "--dry-run", "--", "true") == snapshot("""\
job      sweep, 2 GPUs; the first of 100 jobs of an array; accepted, not submitted
start    ~15:03
reason   waits for 2 GPUs: 1 running, 1 ahead in the queue
finish   ~15:53 ±12 min
ahead    1 job: 1q1gtmja größe-漢字 (user-2)

job      urgent, 4 GPUs; accepted, not submitted
start    after the changes below, with 4 GPUs: box:0,1,2,3
ahead    no job
changes  2 jobs: 1q1ghcmf bert (user-1) shrunk, 2 to 1 GPUs; 1q1gtmja größe-漢字 (user-2) preempted

2 more jobs accepted; only the first requests are planned
""")


def test_dry_run_as_json(rota: Rota):
    assert rota("submit", "--json", "--dry-run", "--", "true") == snapshot("""\
{
  "count": 103,
  "plans": [
    {
      "job": {
        "id": "",
        "name": "sweep",
        "user": "user-1",
        "project": "",
        "state": "queued",
        "reason": "it waits for 8 GPUs of type A100: 2 are free, and 6 more by 14:05 when bert ends",
        "priority": 0,
        "gpus": "2",
        "gpus_held": 0,
        "nodes": [],
        "attempt": 0,
        "submitted_s": 1789999958.0,
        "started_s": null,
        "ended_s": null,
        "running_s": 0.0,
        "epochs": 1,
        "epochs_done": 0,
        "progress": null,
        "remaining_s": 40000.0,
        "finish_s": 1790040000.0,
        "finish_error": 0.3,
        "age_s": 42.0
      },
      "count": 100,
      "starts_now": false,
      "gpus": 0,
      "slots": [],
      "reason": "waits for 2 GPUs: 1 running, 1 ahead in the queue",
      "start_s": 1790003000.0,
      "finish_s": 1790006000.0,
      "finish_error": 0.12,
      "ahead_count": 1,
      "ahead": [
        {
          "id": "1q1gtmja",
          "name": "gr\\u00f6\\u00dfe-\\u6f22\\u5b57",
          "user": "user-2",
          "project": "",
          "state": "queued",
          "reason": "it waits for 8 GPUs of type A100: 2 are free, and 6 more by 14:05 when bert ends",
          "priority": 0,
          "gpus": "8",
          "gpus_held": 0,
          "nodes": [],
          "attempt": 0,
          "submitted_s": 1789999958.0,
          "started_s": null,
          "ended_s": null,
          "running_s": 0.0,
          "epochs": 1,
          "epochs_done": 0,
          "progress": null,
          "remaining_s": 40000.0,
          "finish_s": 1790040000.0,
          "finish_error": 0.3,
          "age_s": 42.0
        }
      ],
      "changes": []
    },
    {
      "job": {
        "id": "",
        "name": "urgent",
        "user": "user-1",
        "project": "",
        "state": "queued",
        "reason": "",
        "priority": 0,
        "gpus": "4",
        "gpus_held": 0,
        "nodes": [],
        "attempt": 0,
        "submitted_s": 1789999958.0,
        "started_s": null,
        "ended_s": null,
        "running_s": 0.0,
        "epochs": 1,
        "epochs_done": 0,
        "progress": null,
        "remaining_s": 40000.0,
        "finish_s": 1790040000.0,
        "finish_error": 0.3,
        "age_s": 42.0
      },
      "count": 1,
      "starts_now": true,
      "gpus": 4,
      "slots": [
        {
          "node": "box",
          "gpus": [
            0,
            1,
            2,
            3
          ]
        }
      ],
      "reason": "",
      "start_s": 1790000000.0,
      "finish_s": null,
      "finish_error": null,
      "ahead_count": 0,
      "ahead": [],
      "changes": [
        {
          "id": "1q1ghcmf",
          "name": "bert",
          "user": "user-1",
          "change": "shrunk",
          "gpus_before": 2,
          "gpus_after": 1
        },
        {
          "id": "1q1gtmja",
          "name": "gr\\u00f6\\u00dfe-\\u6f22\\u5b57",
          "user": "user-2",
          "change": "preempted",
          "gpus_before": 3,
          "gpus_after": 0
        }
      ]
    }
  ]
}
""")
