"""When the kernel gets progress events."""

import math
from dataclasses import replace
from typing import Any

import pytest

from rota.daemon.training.worker_progress import AttemptProgress, WorkerProgress
from tests.support.builders import Lab, cluster, job

HANDED = {"epochs_done": 3.0}
"""What a worker says that was handed 3 epochs and has not looked at its checkpoint yet."""


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (HANDED, None),
        ({**HANDED, "start_s": 4.0}, 3.0),
        ({**HANDED, "steps_done": 1}, 3.0),
        ({"epochs_done": 2.0}, 2.0),
        ({"epochs_done": 3.75}, 3.75),
    ],
)
def test_repeated_initial_progress_is_not_sent(said: dict[str, Any], heard: float | None) -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a", 1, epochs=9.0))
    resumed = replace(lab.job("a"), epochs_done=3.75, epochs_saved=3.75)
    lead = WorkerProgress(0, **said)
    fact = AttemptProgress(attempt=1, by_worker={0: lead}).next_fact(resumed, lead, now=0.0)
    assert (None if fact is None else fact.epochs_done) == heard


@pytest.mark.parametrize(
    ("promised", "said", "total"),
    [
        (1.0, {"epochs_done": 3.0}, math.inf),
        (9.0, {"epochs_done": 3.0}, None),
        (9.0, {"epochs_done": 10.0}, math.inf),
        (1.0, {"epochs_done": 3.0, "epochs_total": 4.0}, 4.0),
        (1.0, {"epochs_done": 0.0, "steps_done": 5}, None),
    ],
    ids=["unknown", "from the user", "beyond the user's", "from the program", "no epochs"],
)
def test_total_epochs_are_never_invented(
    promised: float, said: dict[str, Any], total: float | None
) -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a", 1, epochs=promised))
    lead = WorkerProgress(0, **said)
    fact = AttemptProgress(attempt=1, by_worker={0: lead}).next_fact(lab.job("a"), lead, now=0.0)
    assert fact is not None
    assert fact.epochs_total == total


def test_end_of_an_epoch_is_sent_without_a_measured_duration() -> None:
    """One that was under way while the job changed its size is not measured. The last may be such
    a one, and nothing comes after it."""
    lab = Lab(cluster("1x1"))
    lab.run(job("a", 1, epochs=8.0))
    lead = WorkerProgress(0, epochs_done=7.25, epochs_total=8.0)
    attempt_progress = AttemptProgress(attempt=1, by_worker={0: lead})
    fact = attempt_progress.next_fact(lab.job("a"), lead, now=0.0)
    assert fact is not None
    attempt_progress.record_sent(fact, lead, now=0.0)
    lead.epochs_done = 7.75
    assert attempt_progress.next_fact(lab.job("a"), lead, now=0.1) is None
    lead.epochs_done = 8.0
    last = attempt_progress.next_fact(lab.job("a"), lead, now=0.2)
    assert last is not None
    assert last.epochs_done == 8.0
