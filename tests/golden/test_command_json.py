"""JSON output of all commands with a daemon. Fields may be added, but none may change."""

# ruff: noqa: E501 - a line of JSON is as long as it is
from __future__ import annotations

from inline_snapshot import snapshot

from tests.golden.conftest import Rota


def test_list_of_own_jobs_as_json(rota: Rota):
    assert rota("list", "--json") == snapshot("""\
[
  {
    "id": "1q1ghcmf",
    "name": "bert",
    "user": "user-1",
    "project": "vision",
    "state": "running",
    "reason": "",
    "priority": 5,
    "gpus": "1..4",
    "gpus_held": 2,
    "nodes": [
      "box"
    ],
    "attempt": 2,
    "submitted_s": 1789992616.0,
    "started_s": 1789993000.0,
    "ended_s": null,
    "running_s": 3725.5,
    "epochs": 10,
    "epochs_done": 4.5,
    "progress": 0.45,
    "remaining_s": 3000.0,
    "finish_s": 1790003000.0,
    "finish_error": 0.12,
    "age_s": 7384.0
  },
  {
    "id": "1q1gxzs9",
    "name": "broken",
    "user": "user-1",
    "project": "",
    "state": "failed",
    "reason": "exit code 3",
    "priority": 0,
    "gpus": "0.5",
    "gpus_held": 0,
    "nodes": [],
    "attempt": 1,
    "submitted_s": 1789800000.0,
    "started_s": 1789800010.0,
    "ended_s": 1789801000.0,
    "running_s": 990.0,
    "epochs": 1,
    "epochs_done": 0,
    "progress": null,
    "remaining_s": null,
    "finish_s": null,
    "finish_error": null,
    "age_s": 200000.0
  }
]
""")


def test_list_of_all_users_as_json(rota: Rota):
    assert rota("list", "--json", "--all") == snapshot("""\
[
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
  },
  {
    "id": "1q1ghcmf",
    "name": "bert",
    "user": "user-1",
    "project": "vision",
    "state": "running",
    "reason": "",
    "priority": 5,
    "gpus": "1..4",
    "gpus_held": 2,
    "nodes": [
      "box"
    ],
    "attempt": 2,
    "submitted_s": 1789992616.0,
    "started_s": 1789993000.0,
    "ended_s": null,
    "running_s": 3725.5,
    "epochs": 10,
    "epochs_done": 4.5,
    "progress": 0.45,
    "remaining_s": 3000.0,
    "finish_s": 1790003000.0,
    "finish_error": 0.12,
    "age_s": 7384.0
  },
  {
    "id": "1q1gxzs9",
    "name": "broken",
    "user": "user-1",
    "project": "",
    "state": "failed",
    "reason": "exit code 3",
    "priority": 0,
    "gpus": "0.5",
    "gpus_held": 0,
    "nodes": [],
    "attempt": 1,
    "submitted_s": 1789800000.0,
    "started_s": 1789800010.0,
    "ended_s": 1789801000.0,
    "running_s": 990.0,
    "epochs": 1,
    "epochs_done": 0,
    "progress": null,
    "remaining_s": null,
    "finish_s": null,
    "finish_error": null,
    "age_s": 200000.0
  }
]
""")


def test_show_as_json(rota: Rota):
    assert rota("show", "--json", "bert") == snapshot("""\
{
  "id": "1q1ghcmf",
  "name": "bert",
  "user": "user-1",
  "project": "vision",
  "state": "running",
  "reason": "",
  "priority": 5,
  "gpus": "1..4",
  "gpus_held": 2,
  "nodes": [
    "box"
  ],
  "attempt": 2,
  "submitted_s": 1789992616.0,
  "started_s": 1789993000.0,
  "ended_s": null,
  "running_s": 3725.5,
  "epochs": 10,
  "epochs_done": 4.5,
  "progress": 0.45,
  "remaining_s": 3000.0,
  "finish_s": 1790003000.0,
  "finish_error": 0.12,
  "age_s": 7384.0,
  "request": {
    "command": [
      "python",
      "train.py",
      "--lr",
      "1e-3",
      "--name=a b",
      "--api-key",
      "k123456"
    ],
    "name": "bert",
    "project": "vision",
    "gpus": "1..4",
    "gpus_per_worker": 0,
    "processes": "",
    "nodes": 0,
    "gpu_memory": "",
    "gpu_types": [],
    "node_labels": {},
    "cpus": 2.0,
    "memory": "32GiB",
    "priority": 5,
    "mode": "fixed",
    "epochs": 10,
    "hours": null,
    "category": "",
    "env": {
      "HF_TOKEN": "(hidden)",
      "THREADS": "(hidden)",
      "DB": "(hidden)"
    },
    "workdir": "/home/user-1/bert",
    "umask": 23,
    "image": "",
    "mounts": [],
    "ports": [],
    "host_network": false,
    "snapshot": "",
    "time_limit": "2d",
    "retries": 0,
    "retry_on": [],
    "grace": "",
    "after": [],
    "after_any": [],
    "after_failed": [],
    "array": "",
    "hold": false
  },
  "attempts": [
    {
      "attempt": 1,
      "started_s": 1789993000.0,
      "ended_s": 1789994000.0,
      "outcome": "preempted",
      "reason": "a job of higher priority needed its GPUs",
      "workers": [
        {
          "worker": 0,
          "node": "box",
          "gpus": [
            0
          ],
          "share_bytes": 0,
          "started_s": 1789993000.0,
          "exit_code": 143,
          "ended_s": 1789994000.0,
          "cards": []
        },
        {
          "worker": 1,
          "node": "box",
          "gpus": [
            1
          ],
          "share_bytes": 0,
          "started_s": 1789993500.0,
          "exit_code": 0,
          "ended_s": 1789993999.0,
          "cards": []
        }
      ]
    },
    {
      "attempt": 2,
      "started_s": 1789997275.0,
      "ended_s": null,
      "outcome": "",
      "reason": "",
      "workers": [
        {
          "worker": 0,
          "node": "box",
          "gpus": [
            0,
            1
          ],
          "share_bytes": 0,
          "started_s": 1789997275.0,
          "exit_code": null,
          "ended_s": null,
          "cards": []
        }
      ]
    }
  ],
  "failures": 0,
  "gpu_s": 7451.0,
  "queued_s": 384.0,
  "after": [
    "1q1gaaaa"
  ],
  "array_index": null,
  "epochs_saved": 4.0,
  "lost_s": 754.0,
  "metrics": {
    "loss": 0.0667,
    "accuracy": 0.87
  },
  "stragglers": [
    {
      "worker": 1,
      "node": "box",
      "step_s": 0.081,
      "samples_per_s": 0.0,
      "memory_bytes": 0,
      "gpu_memory_bytes": 0,
      "slowness": 1.5
    }
  ],
  "hint": "worker 1 holds the others up: look at its GPU, its node and its data",
  "after_any": [],
  "after_failed": [],
  "retries_left": 0
}
""")


def test_story_as_json(rota: Rota):
    assert rota("story", "--json", "bert") == snapshot("""\
[
  {
    "number": 1,
    "at_s": 1789992616.0,
    "job_id": "1q1ghcmf",
    "attempt": 0,
    "before": "",
    "after": "queued",
    "cause": "JobSubmitted",
    "reason": "",
    "actor": "user-1"
  },
  {
    "number": 2,
    "at_s": 1789993000.0,
    "job_id": "1q1ghcmf",
    "attempt": 1,
    "before": "queued",
    "after": "starting",
    "cause": "Plan",
    "reason": "",
    "actor": ""
  },
  {
    "number": 3,
    "at_s": 1789993001.0,
    "job_id": "1q1ghcmf",
    "attempt": 1,
    "before": "starting",
    "after": "running",
    "cause": "WorkersStarted",
    "reason": "",
    "actor": ""
  },
  {
    "number": 4,
    "at_s": 1789994000.0,
    "job_id": "1q1ghcmf",
    "attempt": 1,
    "before": "running",
    "after": "queued",
    "cause": "WorkersExited",
    "reason": "preempted by a job of higher priority",
    "actor": ""
  }
]
""")


def test_cancel_as_json(rota: Rota):
    assert rota("cancel", "--json", "bert") == snapshot("""\
[
  {
    "id": "1q1ghcmf",
    "name": "bert",
    "user": "user-1",
    "project": "vision",
    "state": "running",
    "reason": "",
    "priority": 5,
    "gpus": "1..4",
    "gpus_held": 2,
    "nodes": [
      "box"
    ],
    "attempt": 2,
    "submitted_s": 1789992616.0,
    "started_s": 1789993000.0,
    "ended_s": null,
    "running_s": 3725.5,
    "epochs": 10,
    "epochs_done": 4.5,
    "progress": 0.45,
    "remaining_s": 3000.0,
    "finish_s": 1790003000.0,
    "finish_error": 0.12,
    "age_s": 7384.0
  }
]
""")


def test_status_as_json(rota: Rota):
    assert rota("status", "--json") == snapshot("""\
{
  "pid": 4242,
  "version": "0.1.0",
  "engine": "local",
  "address": "127.0.0.1:8800",
  "socket": "/var/lib/rota/rota.sock",
  "started_s": 1789910000.0,
  "policy": "tiresias:knob=4",
  "nodes": 2,
  "gpus": 3,
  "gpus_held": 2,
  "jobs": {
    "running": 1,
    "queued": 1
  },
  "trouble": "",
  "usage": [],
  "scheduling": "",
  "address_problem": "",
  "flags": {},
  "warnings": [],
  "limits": []
}
""")


def test_nodes_list_as_json(rota: Rota):
    assert rota("nodes", "list", "--json") == snapshot("""\
[
  {
    "id": "box",
    "is_draining": false,
    "cpus": 64,
    "memory_bytes": 274877906944,
    "cpus_used": 2,
    "memory_used_bytes": 34359738368,
    "gpus": [
      {
        "index": 0,
        "type": "A100",
        "memory_bytes": 85899345920,
        "used_bytes": 64424509440,
        "utilisation": 0.97,
        "problem": "",
        "jobs": [
          "1q1ghcmf"
        ]
      },
      {
        "index": 1,
        "type": "A100",
        "memory_bytes": 85899345920,
        "used_bytes": 65498251264,
        "utilisation": 0.5,
        "problem": "",
        "jobs": [
          "1q1ghcmf"
        ]
      },
      {
        "index": 2,
        "type": "A100",
        "memory_bytes": 85899345920,
        "used_bytes": 0,
        "utilisation": 0.0,
        "problem": "",
        "jobs": []
      },
      {
        "index": 3,
        "type": "A100",
        "memory_bytes": 85899345920,
        "used_bytes": 0,
        "utilisation": 0.0,
        "problem": "2 uncorrectable memory errors",
        "jobs": []
      }
    ],
    "note": "",
    "is_cordoned": false,
    "state": "ok"
  },
  {
    "id": "old-box",
    "is_draining": true,
    "cpus": 8,
    "memory_bytes": 17179869184,
    "cpus_used": 0,
    "memory_used_bytes": 0,
    "gpus": [],
    "note": "",
    "is_cordoned": false,
    "state": "draining"
  }
]
""")


def test_top_as_json(rota: Rota):
    assert rota("top", "--json") == snapshot("""\
{
  "status": {
    "pid": 4242,
    "version": "0.1.0",
    "engine": "local",
    "address": "127.0.0.1:8800",
    "socket": "/var/lib/rota/rota.sock",
    "started_s": 1789910000.0,
    "policy": "tiresias:knob=4",
    "nodes": 2,
    "gpus": 3,
    "gpus_held": 2,
    "jobs": {
      "running": 1,
      "queued": 1
    },
    "trouble": "",
    "usage": [],
    "scheduling": "",
    "address_problem": "",
    "flags": {},
    "warnings": [],
    "limits": []
  },
  "nodes": [
    {
      "id": "box",
      "is_draining": false,
      "cpus": 64,
      "memory_bytes": 274877906944,
      "cpus_used": 2,
      "memory_used_bytes": 34359738368,
      "gpus": [
        {
          "index": 0,
          "type": "A100",
          "memory_bytes": 85899345920,
          "used_bytes": 64424509440,
          "utilisation": 0.97,
          "problem": "",
          "jobs": [
            "1q1ghcmf"
          ]
        },
        {
          "index": 1,
          "type": "A100",
          "memory_bytes": 85899345920,
          "used_bytes": 65498251264,
          "utilisation": 0.5,
          "problem": "",
          "jobs": [
            "1q1ghcmf"
          ]
        },
        {
          "index": 2,
          "type": "A100",
          "memory_bytes": 85899345920,
          "used_bytes": 0,
          "utilisation": 0.0,
          "problem": "",
          "jobs": []
        },
        {
          "index": 3,
          "type": "A100",
          "memory_bytes": 85899345920,
          "used_bytes": 0,
          "utilisation": 0.0,
          "problem": "2 uncorrectable memory errors",
          "jobs": []
        }
      ],
      "note": "",
      "is_cordoned": false,
      "state": "ok"
    },
    {
      "id": "old-box",
      "is_draining": true,
      "cpus": 8,
      "memory_bytes": 17179869184,
      "cpus_used": 0,
      "memory_used_bytes": 0,
      "gpus": [],
      "note": "",
      "is_cordoned": false,
      "state": "draining"
    }
  ],
  "jobs": [
    {
      "id": "1q1ghcmf",
      "name": "bert",
      "user": "user-1",
      "project": "vision",
      "state": "running",
      "reason": "",
      "priority": 5,
      "gpus": "1..4",
      "gpus_held": 2,
      "nodes": [
        "box"
      ],
      "attempt": 2,
      "submitted_s": 1789992616.0,
      "started_s": 1789993000.0,
      "ended_s": null,
      "running_s": 3725.5,
      "epochs": 10,
      "epochs_done": 4.5,
      "progress": 0.45,
      "remaining_s": 3000.0,
      "finish_s": 1790003000.0,
      "finish_error": 0.12,
      "age_s": 7384.0
    }
  ]
}
""")


def test_token_list_as_json(rota: Rota):
    assert rota("token", "list", "--json") == snapshot("""\
[
  {
    "id": "0a1b2c3d",
    "user": "user-1",
    "scope": "user",
    "created_s": 1789913600.0,
    "expires_s": 1790086400.0,
    "revoked_s": null,
    "secret": "",
    "state": "valid"
  },
  {
    "id": "11223344",
    "user": "user-1",
    "scope": "read_only",
    "created_s": 1789913600.0,
    "expires_s": 1789999940.0,
    "revoked_s": null,
    "secret": "",
    "state": "expired"
  },
  {
    "id": "55667788",
    "user": "user-2",
    "scope": "user",
    "created_s": 1789913600.0,
    "expires_s": null,
    "revoked_s": 1789999995.0,
    "secret": "",
    "state": "revoked"
  }
]
""")


def test_token_revoke_as_json(rota: Rota):
    assert rota("token", "revoke", "--json", "55667788") == snapshot("""\
[
  {
    "id": "55667788",
    "user": "user-2",
    "scope": "user",
    "created_s": 1789913600.0,
    "expires_s": null,
    "revoked_s": 1789999995.0,
    "secret": "",
    "state": "revoked"
  }
]
""")


def test_submit_as_json(rota: Rota):
    assert rota("submit", "--json", "--gpus", "1", "--", "true") == snapshot("""\
{
  "id": "1q1ghcmf",
  "name": "bert",
  "user": "user-1",
  "project": "vision",
  "state": "running",
  "reason": "",
  "priority": 5,
  "gpus": "1..4",
  "gpus_held": 2,
  "nodes": [
    "box"
  ],
  "attempt": 2,
  "submitted_s": 1789992616.0,
  "started_s": 1789993000.0,
  "ended_s": null,
  "running_s": 3725.5,
  "epochs": 10,
  "epochs_done": 4.5,
  "progress": 0.45,
  "remaining_s": 3000.0,
  "finish_s": 1790003000.0,
  "finish_error": 0.12,
  "age_s": 7384.0
}
""")


def test_resubmit_as_json(rota: Rota):
    assert rota("resubmit", "--json", "bert") == snapshot("""\
{
  "id": "1q1ghcmf",
  "name": "bert",
  "user": "user-1",
  "project": "vision",
  "state": "running",
  "reason": "",
  "priority": 5,
  "gpus": "1..4",
  "gpus_held": 2,
  "nodes": [
    "box"
  ],
  "attempt": 2,
  "submitted_s": 1789992616.0,
  "started_s": 1789993000.0,
  "ended_s": null,
  "running_s": 3725.5,
  "epochs": 10,
  "epochs_done": 4.5,
  "progress": 0.45,
  "remaining_s": 3000.0,
  "finish_s": 1790003000.0,
  "finish_error": 0.12,
  "age_s": 7384.0
}
""")


def test_policy_set_as_json(rota: Rota):
    assert rota("policy", "set", "--json", "fifo") == snapshot("""\
{
  "policy": "fifo"
}
""")


def test_token_create_as_json(rota: Rota):
    assert rota("token", "create", "--json") == snapshot("""\
{
  "id": "99aabbcc",
  "user": "user-1",
  "scope": "user",
  "created_s": 1790000000.0,
  "expires_s": null,
  "revoked_s": null,
  "secret": "rota_secret",
  "state": "valid"
}
""")


def test_logs(rota: Rota):
    assert rota("logs", "bert", "--json") == snapshot("""\
{"type": "log", "at_s": 1790000000.0, "attempt": 1, "worker": 0, "text": "epoch 1\\nepo", "mark": ""}
{"type": "log", "at_s": 1790000001.0, "attempt": 1, "worker": 0, "text": "ch 2\\nend", "mark": ""}
""")


def test_wait(rota: Rota):
    assert rota("wait", "bert", "--json") == snapshot("""\
[
  {
    "id": "1q1ghcmf",
    "name": "bert",
    "user": "user-1",
    "project": "vision",
    "state": "succeeded",
    "reason": "",
    "priority": 5,
    "gpus": "1..4",
    "gpus_held": 2,
    "nodes": [
      "box"
    ],
    "attempt": 2,
    "submitted_s": 1789992616.0,
    "started_s": 1789993000.0,
    "ended_s": 1790000000.0,
    "running_s": 3725.5,
    "epochs": 10,
    "epochs_done": 4.5,
    "progress": 0.45,
    "remaining_s": 3000.0,
    "finish_s": 1790003000.0,
    "finish_error": 0.12,
    "age_s": 7384.0
  }
]
""")
