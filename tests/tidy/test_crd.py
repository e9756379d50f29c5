"""The definition of a TrainingJob is in step with what a job file may say."""

from typing import Any

import yaml

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Mode
from rota.kube import resources as objects
from rota.operator import rejections
from rota.operator import training_jobs as resources
from rota.store.kubernetes import crd_codec
from rota.store.kubernetes.crd_codec import StatusDetails, status_of
from rota.wire.job_request import job_fields
from tests.support.builders import Lab, cluster, job
from tests.tidy.job_fields import CRD as FILE
from tests.tidy.job_fields import generated_files


def definition() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text())


def schema() -> dict[str, Any]:
    [version] = definition()["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


WORDS = "description"


def test_files_that_the_table_of_job_fields_generates_are_up_to_date() -> None:
    outdated = [path.name for path, text in generated_files().items() if path.read_text() != text]
    assert outdated == [], "run scripts/generate"


def test_the_spec_has_every_field_of_a_job_file_and_no_other() -> None:
    assert set(schema()["spec"]["properties"]) == {*job_fields(), "size", "workers"}
    required = [each.name for each in job_fields().values() if each.is_required]
    assert schema()["spec"]["required"] == required


def test_the_modes_are_those_of_the_kernel() -> None:
    assert set(job_fields()["mode"].info.choices) == {each.value for each in Mode}


def test_every_field_says_what_it_is_for() -> None:
    for part in ("spec", "status"):
        assert [
            name for name, each in schema()[part]["properties"].items() if not each[WORDS]
        ] == []


def test_nothing_unknown_is_kept() -> None:
    assert "preserve-unknown" not in FILE.read_text()


def test_the_status_has_room_for_all_that_is_written() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    [queued] = lab.kernel.jobs.values()
    known = schema()["status"]["properties"]
    shown = StatusDetails(progress=0.5, finish_s=1.0)
    assert set(status_of(queued, shown, accepted="{}")) | {"term"} == set(known)
    states = known["state"][WORDS]
    assert [each for each in (*JobState, rejections.REFUSED) if each not in states] == []


def test_it_is_called_what_the_engine_asks_for() -> None:
    spec, kind = definition()["spec"], objects.TRAINING_JOBS
    assert f"{spec['group']}/{spec['versions'][0]['name']}" == kind.group_version
    assert (spec["names"]["plural"], spec["names"]["kind"]) == (kind.plural, kind.kind)


def test_store_and_engine_mean_the_same_by_their_words() -> None:
    assert crd_codec.FINALIZER == resources.FINALIZER
    assert crd_codec.JOB == resources.JOB_LABEL
    assert crd_codec.ACCEPTED == resources.ACCEPTED
