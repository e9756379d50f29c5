from collections.abc import Sequence
from dataclasses import replace

import pytest

from rota.core.model.job import GpuShare, JobSpec
from rota.core.model.node import Node
from rota.core.model.units import GIB
from rota.errors import InputError
from rota.simulator.cluster_spec import parse_cluster
from rota.simulator.feasibility import check_fits
from rota.simulator.workload import Scaling, TraceEntry, workload_of

MIXED = parse_cluster("2x4:V100,1x8:A100/16cpu/64GiB")


def sized(workers: int, **more: object) -> JobSpec:
    spec = JobSpec("job", min_workers=1, max_workers=workers, requested_workers=workers)
    return replace(spec, **more)


def fixed(workers: int, **more: object) -> JobSpec:
    return sized(workers, min_workers=workers, **more)


def check(spec: JobSpec, nodes: Sequence[Node] = MIXED) -> None:
    fine = JobSpec("fine")
    entries = [
        TraceEntry(0.0, row, each, Scaling(1, (0, 1))) for row, each in ((2, fine), (3, spec))
    ]
    check_fits(workload_of("made.csv", entries, gpus_field="num_gpus"), nodes)


@pytest.mark.parametrize(
    "spec",
    [
        sized(8),
        sized(8, gpu_types=("V100",)),
        sized(1, gpus=8),
        sized(2, gpus=4, gpu_types=("V100", "H100")),
        sized(2, gpus=0, cpus=16.0),
        sized(4, cpus=4.0, memory_bytes=16 * GIB, gpu_types=("A100",)),
        sized(1, gpus=0, share=GpuShare(memory_bytes=16 * GIB)),
        sized(32, gpus=0, share=GpuShare(fraction=0.25)),
        # Neither a maximum nor a request above what fits is any harm while the minimum fits.
        replace(sized(100), requested_workers=2),
        replace(sized(100), min_workers=8),
    ],
)
def test_jobs_that_fit(spec: JobSpec):
    check(spec)


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (fixed(9), "num_gpus", "requests 9 GPUs, at most 8 fit"),
        (fixed(3, gpus=4), "num_gpus", "requests 12 GPUs, at most 8 fit"),
        (
            sized(1, gpu_types=("H100",)),
            "gpu_types",
            "requests a GPU of type H100, no node has one; the cluster has A100, V100",
        ),
        (
            fixed(5, cpus=4.0, gpu_types=("A100",)),
            "num_gpus",
            "requests 5 GPUs, at most 4 fit",
        ),
        (sized(1, gpus=9), "gpus_per_worker", "requests 9 GPUs per worker, largest node has 8"),
        (
            sized(1, gpus=5, gpu_types=("V100",)),
            "gpus_per_worker",
            "requests 5 GPUs per worker, largest node has 4",
        ),
        (
            sized(1, gpus=0, share=GpuShare(memory_bytes=17 * GIB)),
            "num_gpus",
            "requests 17 GiB of GPU memory per worker, largest GPU has 16 GiB",
        ),
        (
            sized(1, node_labels=frozenset({("disk", "ssd")})),
            "node_labels",
            "requests nodes with the label disk=ssd, no node has it",
        ),
        (
            replace(sized(2), min_workers=3),
            "num_gpus",
            "requests 2 workers, outside of its range 3..2",
        ),
    ],
)
def test_jobs_that_never_fit_are_named(spec: JobSpec, field: str, message: str):
    with pytest.raises(InputError) as caught:
        check(spec)
    assert (caught.value.where.file, caught.value.where.row) == ("made.csv", 3)
    assert caught.value.where.field == field
    assert f"job 'job' can never run: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (sized(1, gpus=0, cpus=17.0), "cpus", "17 CPUs"),
        (sized(1, gpus=0, memory_bytes=65 * GIB), "memory", "65 GiB of memory"),
        (sized(1), "num_gpus", "requests a GPU, no node has one; the cluster has no GPUs"),
        (fixed(2, gpus=0, cpus=9.0), "num_gpus", "requests 2 workers, at most 1 fit"),
    ],
)
def test_a_cluster_without_gpus(spec: JobSpec, field: str, message: str):
    fine = JobSpec("fine", gpus=0)
    entries = [
        TraceEntry(0.0, row, each, Scaling(1, (0, 1))) for row, each in ((2, fine), (3, spec))
    ]
    workload = workload_of("made.csv", entries, gpus_field="num_gpus")
    with pytest.raises(InputError) as caught:
        check_fits(workload, parse_cluster("1x0/16cpu/64GiB"))
    assert caught.value.where.field == field
    assert message in str(caught.value)
