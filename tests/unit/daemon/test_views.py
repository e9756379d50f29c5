"""Jobs as they are told of, whatever the disk knows of them already."""

from rota.core.states import State
from rota.daemon.views import by_now, job_view
from tests.builders import Lab, cluster, job


def test_what_is_over_holds_nothing_and_says_so_once_the_disk_knows() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", 2))
    on_disk = job_view(lab.job("a"), now=9.0)
    assert by_now(on_disk, lab.kernel) == on_disk
    assert on_disk.gpus_held == 2
    lab.exited("a")
    told = by_now(on_disk, lab.kernel)
    assert (told.state, told.gpus_held, told.nodes) == (State.RUNNING, 0, [])
