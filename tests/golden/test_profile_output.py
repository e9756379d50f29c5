"""Text and JSON output of `rota profile`."""

# ruff: noqa: E501 - a table is as wide as it is
from __future__ import annotations

from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from tests.golden.conftest import Rota
from tests.golden.fake_client import FakeClient
from tests.golden.profiles import PROFILE


def test_profile(rota: Rota):
    assert rota("profile", "bert") == snapshot("""\
job     bert (1q1ghcmf)
epochs  4.5 of 10
lost    12m34s of work

                                    epoch        epoch      speedup    speedup
gpus   crosses_nodes   count     measured       fitted     measured     fitted   origin
─────────────────────────────────────────────────────────────────────────────────────────────────────────
   1   no                  3   14m00s ±4%   14m00s ±4%            1          1   measured by its category
   2   no                  4    7m36s ±3%    7m49s ±4%     1.84 ±5%   1.79 ±6%   measured here
   2   yes                 1   8m40s ±10%    7m49s ±4%   1.615 ±11%   1.79 ±6%   measured here
   3   -                   -            -    5m36s ±6%            -    2.5 ±6%   fitted to this job
   4   -                   -            -    4m31s ±6%            -    3.1 ±6%   fitted to this job

speed-up over one worker: dots measured (hollow: across nodes), line fitted
  │
3 ┤                                                      ······
  │                                           ···········
  │                                 ··········
2 ┤                    │  ··········
  │              ······○··
  │      ········      │
1 ┤●·····
  │
  │
0 ┤
  └┬───────────────────┬──────────────────┬───────────────────┬
   1                   2                  3                   4   GPUs

step time
      │                                   ●     ●     ●     ●     ●
80 ms ┤                               ● ●   ● ●   ● ●   ● ●   ● ●
      │
60 ms ┤
      │● ● ● ● ● ● ● ● ● ● ● ● ● ● ●  ● ● ● ● ● ● ● ● ● ● ● ● ● ● ●
40 ms ┤
      │
      │
20 ms ┤
      │
  0 s ┤
      └┬─────────┬─────────┬──────────┬─────────┬─────────┬────────
       0s     10m00s    20m00s     30m00s    40m00s    50m00s   since the first report

worker   node    step   samples_per_s     memory   gpu_memory   slowness
─────────────────────────────────────────────────────────────────────────────────────────────────────
     0   box    54 ms           592.6   4.45 GiB       10 GiB   -
     1   box    81 ms           395.1   4.45 GiB       10 GiB   1.5 times the step time of the others

latest durations: start 12.2 s, save 840 ms, stop 3 s

metric     first       min    max   latest
──────────────────────────────────────────
loss           2   0.06667      2   0.0667
accuracy       0         0   0.87     0.87
""")


def test_profile_as_json(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    short = replace(PROFILE, sizes=PROFILE.sizes[:2], steps=PROFILE.steps[:1])
    monkeypatch.setattr(FakeClient, "profile", lambda *_: short)
    assert rota("profile", "bert", "--json") == snapshot("""\
{
  "id": "1q1ghcmf",
  "name": "bert",
  "category": "0123456789abcdef",
  "min_gpus": 1,
  "max_gpus": 4,
  "epochs": 10,
  "epochs_done": 4.5,
  "sizes": [
    {
      "gpus": 1,
      "kind": "measured",
      "origin": "category",
      "crosses_nodes": false,
      "count": 3,
      "epoch_s": 840.0,
      "epoch_error": 0.04,
      "speedup": 1.0,
      "speedup_error": 0.0
    },
    {
      "gpus": 1,
      "kind": "fitted",
      "origin": "category",
      "crosses_nodes": false,
      "count": 0,
      "epoch_s": 840.0,
      "epoch_error": 0.04,
      "speedup": 1.0,
      "speedup_error": 0.0
    }
  ],
  "steps": [
    {
      "at_s": 1789993000.0,
      "attempt": 1,
      "worker": 0,
      "gpus": 2,
      "epochs_done": 0.0,
      "step_s": 0.05,
      "samples_per_s": 640.0,
      "memory_bytes": 3221225472,
      "gpu_memory_bytes": 10737418240,
      "metrics": {
        "loss": 2.0,
        "accuracy": 0.0
      }
    }
  ],
  "workers": [
    {
      "worker": 0,
      "node": "box",
      "step_s": 0.054,
      "samples_per_s": 592.6,
      "memory_bytes": 4778151116,
      "gpu_memory_bytes": 10737418240,
      "slowness": null
    },
    {
      "worker": 1,
      "node": "box",
      "step_s": 0.081,
      "samples_per_s": 395.1,
      "memory_bytes": 4778151116,
      "gpu_memory_bytes": 10737418240,
      "slowness": 1.5
    }
  ],
  "handling": {
    "start_s": 12.25,
    "save_s": 0.84,
    "load_s": null,
    "stop_s": 3.0
  },
  "metrics": {
    "loss": 0.0667,
    "accuracy": 0.87
  },
  "lost_s": 754.0
}
""")
