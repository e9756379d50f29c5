"""Output of `rota simulate` for a fixed run."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from inline_snapshot import snapshot

from rota.cli.main import run as rota
from rota.core.model.job import JobId
from rota.core.scheduling.policy_api import Policy
from rota.policies.registry import describe
from rota.simulator.metrics import Outcome, SimulationRun


def made_up(
    *_: object, policy: Policy, progress: Callable[[float], None], **__: object
) -> SimulationRun:
    name = describe(policy)
    slow_s = 600.0 * len(name)
    progress(1.0)
    outcomes = (
        Outcome(JobId("j1"), "a", 0.0, 30.0, 3600.0 + slow_s, 30.0, 7200.0, 3600.0),
        Outcome(JobId("j2"), "b", 60.0, 90.0, 7260.0 + slow_s, 30.0, 14_400.0, 9000.0),
        Outcome(JobId("j3"), "c", 90.0, math.inf, math.inf, 600.0, 0.0, math.inf),
    )
    usage = ((0.0, 6.0), (3600.0, 4.0), (7200.0, 0.0))
    return SimulationRun(name, 12, outcomes, (), usage, 1, 22, 333, 4444, (0.001, 0.002, 0.0125))


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.simulator.runner.simulate", made_up)


TASK = ["simulate", "voda:run_1", "--cluster", "3x4"]


def test_table(capsys: pytest.CaptureFixture[str]):
    assert rota([*TASK, "--policy", "fifo", "--policy", "tiresias:knob=4"]) == 0
    assert capsys.readouterr().out == snapshot("""\
Completion time
                                    mean_jct   p50_jct   p95_jct   p99_jct   makespan   mean_wait
policy            jobs   finished          h         h         h         h          h           h
─────────────────────────────────────────────────────────────────────────────────────────────────
fifo                 3          2       2.17      2.17      2.62      2.66       2.68        0.06
tiresias:knob=4      3          2       4.00      4.00      4.45      4.49       4.52        0.06

Cluster and fairness
                  utilisation   gpu_hours   worst_unfairness   unfair_share
policy                      %       GPU h                  x              %
───────────────────────────────────────────────────────────────────────────
fifo                     31.1        6.00               1.67          100.0
tiresias:knob=4          18.5        6.00               3.50          100.0

Changes
policy            preemptions   resizes   moves   rounds
────────────────────────────────────────────────────────
fifo                        1        22     333    4,444
tiresias:knob=4             1        22     333    4,444

Decision time
                  decision_p50   decision_p99   decision_max
policy                      ms             ms             ms
────────────────────────────────────────────────────────────
fifo                      2.00          12.29          12.50
tiresias:knob=4           2.00          12.29          12.50
""")


def test_json(capsys: pytest.CaptureFixture[str]):
    assert rota([*TASK, "--policy", "fifo", "--json"]) == 0
    assert capsys.readouterr().out == snapshot("""\
[
  {
    "policy": "fifo",
    "jobs": 3,
    "finished": 2,
    "mean_jct_s": 7800.0,
    "p50_jct_s": 7800.0,
    "p95_jct_s": 9420.0,
    "p99_jct_s": 9564.0,
    "makespan_s": 9660.0,
    "mean_wait_s": 220.0,
    "utilisation": 0.3105590062111801,
    "gpu_hours": 6.0,
    "preemptions": 1,
    "resizes": 22,
    "moves": 333,
    "rounds": 4444,
    "decision_ms_p50": 2.0,
    "decision_ms_p99": 12.29,
    "decision_ms_max": 12.5,
    "worst_unfairness": 1.6666666666666667,
    "unfair_share": 1.0
  }
]
""")
