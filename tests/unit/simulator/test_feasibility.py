from collections.abc import Sequence
from dataclasses import replace

import pytest

from rota.core.model import GIB, JobSpec, Node, Share
from rota.errors import InputError
from rota.simulator.cluster import parse_cluster
from rota.simulator.fits import check_fits
from rota.simulator.workload import Entry, Scaling, workload_of

MIXED = parse_cluster("2x4:V100,1x8:A100/16cpu/64GiB")


def sized(workers: int, **more: object) -> JobSpec:
    spec = JobSpec("job", min_workers=1, max_workers=workers, requested_workers=workers)
    return replace(spec, **more)


def fixed(workers: int, **more: object) -> JobSpec:
    return sized(workers, min_workers=workers, **more)


def check(spec: JobSpec, nodes: Sequence[Node] = MIXED) -> None:
    fine = JobSpec("fine")
    entries = [Entry(0.0, row, each, Scaling(1, (0, 1))) for row, each in ((2, fine), (3, spec))]
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
        sized(1, gpus=0, share=Share(memory_bytes=16 * GIB)),
        sized(32, gpus=0, share=Share(fraction=0.25)),
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
        (fixed(9), "num_gpus", "it needs 9 GPUs and at most 8 fit"),
        (fixed(3, gpus=4), "num_gpus", "it needs 12 GPUs and at most 8 fit"),
        (
            sized(1, gpu_types=("H100",)),
            "gpu_types",
            "no node has a GPU of type H100; the cluster has A100, V100",
        ),
        (
            fixed(5, cpus=4.0, gpu_types=("A100",)),
            "num_gpus",
            "it needs 5 GPUs and at most 4 fit",
        ),
        (sized(1, gpus=9), "gpus_per_worker", "no single node has 9 GPUs for a worker"),
        (
            sized(1, gpus=5, gpu_types=("V100",)),
            "gpus_per_worker",
            "no single node has 5 GPUs for a worker",
        ),
        (
            sized(1, gpus=0, share=Share(memory_bytes=17 * GIB)),
            "num_gpus",
            "no single node has a GPU with 17 GiB for a worker",
        ),
        (
            sized(1, node_labels=frozenset({("disk", "ssd")})),
            "node_labels",
            "no node is labelled disk=ssd",
        ),
        (replace(sized(2), min_workers=3), "num_gpus", "it asks for 2 of 3..2 workers"),
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
        (sized(1), "num_gpus", "no node has a GPU; the cluster has no GPUs"),
        (fixed(2, gpus=0, cpus=9.0), "num_gpus", "it needs 2 workers and at most 1 fit"),
    ],
)
def test_a_cluster_without_gpus(spec: JobSpec, field: str, message: str):
    fine = JobSpec("fine", gpus=0)
    entries = [Entry(0.0, row, each, Scaling(1, (0, 1))) for row, each in ((2, fine), (3, spec))]
    workload = workload_of("made.csv", entries, gpus_field="num_gpus")
    with pytest.raises(InputError) as caught:
        check_fits(workload, parse_cluster("1x0/16cpu/64GiB"))
    assert caught.value.where.field == field
    assert message in str(caught.value)
