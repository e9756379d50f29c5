"""kill -9 of the daemon, of keepers and of workers, at random moments: nothing lost, nothing twice.

A hundred rounds in all, of which a short run has ten.
"""

import pytest

from tests.counts import seeds
from tests.e2e.house import a_house
from tests.e2e.kills import N_GPUS, Day


@pytest.mark.parametrize("seed", seeds(10))
def test_nothing_is_lost_and_nothing_runs_twice(seed: int) -> None:
    with a_house(gpus=f"{N_GPUS}x16GiB") as house:
        day = Day(house, seed)
        try:
            day.run()
            assert day.complaints() == []
        except BaseException as error:
            error.add_note(f"seed={seed}; to replay it: python -m tests.e2e.replay {seed}")
            raise
