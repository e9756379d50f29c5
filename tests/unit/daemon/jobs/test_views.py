"""Views of jobs whose end is not in the store yet."""

from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.daemon.jobs.views import job_view, node_views, without_released_gpus
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


def test_node_views_take_one_pass_over_the_jobs() -> None:
    lab = Lab(cluster("3x2"))
    lab.run(*(job(name, 1, cpus=1.0) for name in "abcd"))
    once = (each for each in lab.kernel.jobs.values())
    views = node_views(lab.kernel.nodes.values(), once, readings={})
    held = sorted((view.id, gpu.index, gpu.jobs) for view in views for gpu in view.gpus)
    assert sorted(name for _, _, names in held for name in names) == ["a", "b", "c", "d"]
    assert sum(view.cpus_used for view in views) == 4.0
