from rota.core.model.allocation import n_gpus
from rota.core.model.job import GpuShare, JobSpec
from rota.core.model.units import GIB
from rota.simulator.cluster_spec import parse_cluster
from rota.simulator.standalone_runtime import StandaloneBaseline

MIXED = StandaloneBaseline(parse_cluster("1x5:V100@16GiB,1x4:A100@80GiB"))


def test_a_worker_has_all_its_gpus_on_one_node():
    slots = MIXED.slots(JobSpec("job", gpus=2, max_workers=8))
    assert [(slot.node, slot.gpus) for slot in slots] == [
        ("node-01", (0, 1)),
        ("node-01", (2, 3)),
        ("node-02", (0, 1)),
        ("node-02", (2, 3)),
    ]


def test_workers_without_whole_gpus_all_get_a_slot():
    assert len(MIXED.slots(JobSpec("cpu", gpus=0, max_workers=20))) == 20
    assert n_gpus(StandaloneBaseline(parse_cluster("2x0")).slots(JobSpec("cpu", gpus=0))) == 0


def test_jobs_of_one_demand_share_their_slots():
    assert MIXED.slots(JobSpec("a")) is MIXED.slots(JobSpec("b", max_workers=4))


def test_bytes_count_as_a_fraction_of_a_usable_gpu():
    def gpus(size: int, *types: str) -> float:
        spec = JobSpec("job", gpus=0, share=GpuShare(memory_bytes=size * GIB), gpu_types=types)
        return MIXED.gpus_per_worker(spec)

    assert gpus(8) == 0.5
    assert gpus(8, "A100") == 0.1
    assert gpus(20) == 0.25
    assert MIXED.gpus_per_worker(JobSpec("half", gpus=0, share=GpuShare(fraction=0.5))) == 0.5
