"""A failure that is known by its log comes with what may help against it."""

from tests.integration.api.house import ANNA, BERT, House, submit

OOM = "echo torch.cuda.OutOfMemoryError: CUDA out of memory >&2; exit 1"


def test_the_owner_is_given_the_hint_and_nobody_else(house: House) -> None:
    with house.person(ANNA) as anna, house.person(BERT) as bert:
        job = submit(anna, command=["sh", "-c", OOM], gpus="0")
        assert house.reaches(job, "failed", "succeeded") == "failed"
        own, others = (each.get(f"/v1/jobs/{job}").json() for each in (anna, bert))
    assert "(OOM)" in own["job"]["reason"]
    assert "--gpu-memory" in own["hint"]
    assert others["hint"] == ""


def test_a_job_that_failed_in_its_own_way_has_none(house: House) -> None:
    job = submit(house.admin, command=["sh", "-c", "exit 3"], gpus="0")
    assert house.reaches(job, "failed", "succeeded") == "failed"
    assert house.admin.get(f"/v1/jobs/{job}").json()["hint"] == ""
