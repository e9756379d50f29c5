"""Philly and ElasticFlow: durations at a fixed number of GPUs."""

from pathlib import Path

from rota.core.model.allocation import Slot
from rota.core.model.job import Estimate
from rota.core.model.node import NodeId
from rota.simulator.traces import load
from rota.simulator.workload import Scaling, Workload


def written(path: Path, *lines: str) -> Workload:
    path.write_text("\n".join(lines) + "\n")
    return load(str(path))


def test_philly_is_sorted_and_counts_from_the_first_submission(tmp_path: Path):
    workload = written(
        tmp_path / "philly.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 07:01:55,66.0,1,66.0,vc1",
        "2017-10-09 06:01:55,2951.0,8,23608.0,vc2",
        "2017-10-10 06:01:55,10,1,10,vc1",
    )
    assert [(job.id, job.submit_s, job.row) for job in workload.jobs] == [
        ("j00001", 0, 3),
        ("j00002", 3600, 2),
        ("j00003", 86400, 4),
    ]
    spec = workload.jobs[0].spec
    assert (spec.name, spec.project) == ("philly-3", "vc2")
    assert (spec.min_workers, spec.max_workers, spec.requested_workers) == (8, 8, 8)
    assert (spec.gpus, spec.epochs) == (1, 1)
    assert spec.estimate == Estimate(2951, 8)


def test_the_duration_is_that_of_the_trace_at_its_size(tmp_path: Path):
    workload = written(
        tmp_path / "philly.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 06:01:55,2951.0,8,23608.0,vc2",
    )
    allocation = tuple(Slot(NodeId("n"), (index,)) for index in range(8))
    assert round(workload.jobs[0].runtime.run_s(allocation), 6) == 2951


def test_jobs_share_their_speedups(tmp_path: Path):
    workload = written(
        tmp_path / "raw.csv",
        "job_id,submission_time,duration,num_gpu",
        "aa,1932025,2429,64",
        "bb,2000581,1532,1",
    )
    first, second = (job.runtime for job in workload.jobs)
    assert isinstance(first, Scaling)
    assert isinstance(second, Scaling)
    assert first.speedups is second.speedups


def test_elasticflow_raw(tmp_path: Path):
    workload = written(
        tmp_path / "raw.csv",
        "job_id,submission_time,duration,num_gpu",
        "bb,2000581,1532,1",
        "aa,1932025,2429,64",
    )
    assert [(job.spec.name, job.submit_s) for job in workload.jobs] == [("aa", 0), ("bb", 68556)]
    assert workload.jobs[0].spec.requested_workers == 64
    assert workload.gpus_field == "num_gpu"


def test_elasticflow_with_models(tmp_path: Path):
    workload = written(
        tmp_path / "195.csv",
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration",
        "cc,3715485,3249,deepspeech2,3716178,32,1,1075",
    )
    (job,) = workload.jobs
    assert (job.submit_s, job.spec.category) == (0, "deepspeech2")
    assert job.spec.estimate == Estimate(1075, 1)
