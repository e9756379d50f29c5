"""A change of priority while the job waits or runs."""

from rota.core.model.events import JobPrioritised
from rota.core.model.job import JobId
from tests.support.builders import Lab, cluster, job

A, B = JobId("a"), JobId("b")


def test_a_job_with_a_raised_priority_comes_first() -> None:
    lab = Lab(cluster("1x1"), policy="fifo")
    lab.submit(job("a"), job("b"))
    assert set(lab.decide().allocations) == {A}
    lab.tell(JobPrioritised(B, 5, "owner"))
    assert set(lab.decide().allocations) == {B}
    assert lab.reason("b") == "priority set to 5 by owner"
