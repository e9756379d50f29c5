"""kill -9 of the daemon, supervisors and workers at random moments: no job is lost or runs twice.

A hundred rounds in all, of which a short run has ten.
"""

import pytest

from tests.support.daemon_process import temporary_daemon
from tests.support.kill_scenario import N_GPUS, KillScenario
from tests.support.seed_counts import seeds


@pytest.mark.parametrize("seed", seeds(10))
def test_no_job_is_lost_or_runs_twice(seed: int) -> None:
    with temporary_daemon(gpus=f"{N_GPUS}x16GiB") as daemon:
        scenario = KillScenario(daemon, seed)
        try:
            scenario.run()
            assert scenario.complaints() == []
        except BaseException as error:
            error.add_note(f"seed={seed}; to replay it: python -m tests.e2e.replay {seed}")
            raise
