"""Retention of the files of ended jobs."""

import os
from pathlib import Path

from rota.core.model.job import JobId
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import VirtualGpus
from rota.engines.local.worker_dirs import WorkerDirs


def test_files_of_old_jobs_are_deleted(tmp_path: Path):
    folders = WorkerDirs(tmp_path)
    folders.make()
    for job, ended_s in {"old": 100.0, "new": 900.0, "alive": 100.0}.items():
        worker = folders.jobs / job / "1" / "0"
        worker.mkdir(parents=True)
        (worker / "exit.json").touch()
        for path in (worker / "exit.json", folders.jobs / job):
            os.utime(path, (ended_s, ended_s))
    engine = LocalEngine(tmp_path, VirtualGpus(0, 0))
    assert engine.forget_before(500.0, keep={JobId("alive")}) == [JobId("old")]
    assert sorted(each.name for each in folders.jobs.iterdir()) == ["alive", "new"]
