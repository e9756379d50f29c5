"""A failure that is known by its log comes with what may help against it."""

from tests.integration.api.daemon_process import ANNA, BERT, ApiDaemon, submit

OOM = "echo torch.cuda.OutOfMemoryError: CUDA out of memory >&2; exit 1"


def test_the_owner_is_given_the_hint_and_nobody_else(daemon: ApiDaemon) -> None:
    with daemon.person(ANNA) as anna, daemon.person(BERT) as bert:
        job = submit(anna, command=["sh", "-c", OOM], gpus="0")
        assert daemon.reaches(job, "failed", "succeeded") == "failed"
        own, others = (each.get(f"/v1/jobs/{job}").json() for each in (anna, bert))
    assert "(OOM)" in own["job"]["reason"]
    assert "--gpu-memory" in own["hint"]
    assert others["hint"] == ""


def test_a_job_that_failed_in_its_own_way_has_none(daemon: ApiDaemon) -> None:
    job = submit(daemon.admin, command=["sh", "-c", "exit 3"], gpus="0")
    assert daemon.reaches(job, "failed", "succeeded") == "failed"
    assert daemon.admin.get(f"/v1/jobs/{job}").json()["hint"] == ""
