"""Views of jobs whose end is not in the store yet."""

from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.daemon.jobs.views import job_view, without_released_gpus
from tests.support.builders import Lab, cluster, job


def test_an_ended_job_holds_no_gpus_before_its_end_is_stored() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", 2))
    on_disk = job_view(lab.job("a"), now=9.0)
    assert without_released_gpus(on_disk, lab.kernel.job(JobId("a"))) == on_disk
    assert on_disk.gpus_held == 2
    lab.exited("a")
    told = without_released_gpus(on_disk, lab.kernel.job(JobId("a")))
    assert (told.state, told.gpus_held, told.nodes) == (JobState.RUNNING, 0, [])
