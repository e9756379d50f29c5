"""A job with a known failure in its log has a hint."""

from tests.integration.api.daemon_process import ANNA, BERT, ApiDaemon, submit

OOM = "echo torch.cuda.OutOfMemoryError: CUDA out of memory >&2; exit 1"


def test_only_the_owner_sees_the_hint(daemon: ApiDaemon) -> None:
    with daemon.person(ANNA) as anna, daemon.person(BERT) as bert:
        job = submit(anna, command=["sh", "-c", OOM], gpus="0")
        assert daemon.reaches(job, "failed", "succeeded") == "failed"
        own, others = (each.get(f"/v1/jobs/{job}").json() for each in (anna, bert))
    assert "(OOM)" in own["job"]["reason"]
    assert "--gpu-memory" in own["hint"]
    assert others["hint"] == ""


def test_unknown_failure_has_no_hint(daemon: ApiDaemon) -> None:
    job = submit(daemon.admin, command=["sh", "-c", "exit 3"], gpus="0")
    assert daemon.reaches(job, "failed", "succeeded") == "failed"
    assert daemon.admin.get(f"/v1/jobs/{job}").json()["hint"] == ""
