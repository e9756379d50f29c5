"""Jobs of a request, and rejected requests."""

import dataclasses
import math
from dataclasses import replace
from typing import Any

import pytest

from rota.core.explain.feasibility import FeasibilityChecker
from rota.core.lifecycle.reducer import new_job
from rota.core.model.events import JobEdited, JobSubmitted
from rota.core.model.job import Estimate, GpuShare, Job, JobId, JobSpec, Mode, Processes
from rota.core.model.units import GIB
from rota.daemon.errors import RefusedError
from rota.daemon.jobs.admission import (
    Admitted,
    Defaults,
    adapted_to_site,
    admit,
    edit_event,
    with_edits,
    without_defaults,
)
from rota.daemon.jobs.validation import check_shape, parse_mount
from rota.errors import UserError
from rota.wire.job_changes import JobEdit
from rota.wire.job_request import edit_fields
from rota.wire.jobs import JobRequest
from tests.support.builders import Lab, cluster

NODES = cluster("1x4")
NOTHING = Defaults()


def admitted(
    defaults: Defaults = NOTHING, *, is_moved: bool = False, **fields: Any
) -> list[Admitted]:
    request = JobRequest(**{"command": ["python", "train.py"], **fields})
    check_shape(request)
    if is_moved:
        request = adapted_to_site(request, user="user-1", defaults=defaults)
    return admit(request, user="user-1", defaults=defaults, feasibility=FeasibilityChecker(NODES))


def spec(**fields: Any) -> JobSpec:
    (only,) = admitted(**fields)
    return replace(only.spec, category="")


def refusal(**fields: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        admitted(**fields)
    return f"{caught.value.field}: {caught.value}"


PLAIN = JobSpec(name="train.py", user="user-1", mode=Mode.FIXED, gpus=1)


def test_a_command_without_options_is_one_worker_on_one_gpu():
    assert spec() == PLAIN


PER_NODE = replace(PLAIN, processes=Processes.PER_NODE, max_nodes=1)


def test_several_gpus_belong_to_one_process_by_default():
    two = replace(PER_NODE, min_workers=2, max_workers=2, requested_workers=2)
    assert spec(gpus="2") == two
    assert spec(gpus="2", mode="restart") == replace(two, mode=Mode.RESTART)


def test_a_range_of_gpus_is_a_range_of_one_process():
    assert spec(gpus="1..4") == replace(PER_NODE, max_workers=4)


def test_a_size_to_start_with():
    start = {"max_workers": 4, "requested_workers": 2, "start_units": 2}
    assert spec(gpus="1..4@2") == replace(PER_NODE, **start)


@pytest.mark.parametrize("mode", ["live", "torchrun"])
def test_jobs_that_resize_in_place_have_a_process_for_each_gpu(mode: str):
    assert spec(gpus="1..4", mode=mode) == replace(PLAIN, mode=Mode(mode), max_workers=4)


def test_processes_for_several_gpus_each():
    sized = {"gpus": 2, "min_workers": 2, "max_workers": 2, "requested_workers": 2}
    assert spec(gpus="4", gpus_per_worker=2) == replace(PLAIN, **sized)
    assert "leave it out" in refusal(gpus="4", gpus_per_worker=2, processes="per-node")
    assert "use per-node, per-gpu" in refusal(gpus="4", processes="per-core")


@pytest.mark.parametrize(
    ("command", "nodes"),
    [
        (["python", "train.py"], 1),
        (["torchrun", "train.py"], 0),
        (["/opt/bin/torchrun", "--nnodes", "2", "train.py"], 0),
        (["python", "-m", "torch.distributed.run", "train.py"], 0),
        (["accelerate", "launch", "train.py"], 0),
        (["python", "-m", "train"], 1),
        (["python", "torchrun"], 1),
    ],
)
def test_only_a_launcher_spans_nodes_by_default(command: list[str], nodes: int):
    assert spec(command=command, gpus="2").max_nodes == nodes
    assert spec(command=command, gpus="2", nodes=3).max_nodes == 3


def test_too_few_nodes_are_refused_with_a_hint():
    assert "requests 8 GPUs, at most 4 fit on 1 node" in refusal(gpus="8")


def test_memory_is_reserved_on_each_gpu():
    two = {"min_workers": 2, "max_workers": 2, "requested_workers": 2}
    share = GpuShare(memory_bytes=6 * GIB)
    expected = replace(PER_NODE, gpus=0, share=share, **two)
    assert spec(gpus="2", gpu_memory="6GiB") == expected


def test_shares():
    assert spec(gpus="0.5") == replace(PLAIN, gpus=0, share=GpuShare(fraction=0.5))
    assert spec(gpu_memory="6GiB") == replace(PLAIN, gpus=0, share=GpuShare(memory_bytes=6 * GIB))


def test_the_user_may_set_rota_patience():
    assert spec(env={"ROTA_PATIENCE": "60"}) == PLAIN


def test_no_gpus():
    assert spec(gpus="0") == replace(PLAIN, gpus=0)


def test_times_and_estimates():
    found = spec(time_limit="2h", grace="90s", hours=1.5, epochs=10)
    assert found == replace(
        PLAIN, time_limit_s=7200.0, grace_s=90.0, epochs=10, estimate=Estimate(5400.0, 1)
    )


def test_an_array_is_one_job_for_each_index():
    found = admitted(array="0-1,5")
    assert [(each.spec.name, each.array_index) for each in found] == [
        ("train.py[0]", 0),
        ("train.py[1]", 1),
        ("train.py[5]", 5),
    ]


def test_the_site_s_defaults_are_filled_in():
    site = Defaults(image="lab/torch", env={"A": "1", "B": "2"}, mounts=("/data/{user}:/data:rw",))
    (only,) = admitted(site, env={"B": "3"})
    assert only.request.image == "lab/torch"
    assert only.request.env == {"A": "1", "B": "3"}
    assert only.request.mounts == ["/data/user-1:/data:rw"]


def test_the_sites_mounts_are_there_once_however_often_a_job_is_submitted_again():
    site = Defaults(image="lab/torch", mounts=("/data/{user}:/data",))
    (first,) = admitted(site, mounts=["/own:/own"])
    (again,) = admit(
        first.request, user="user-1", defaults=site, feasibility=FeasibilityChecker(NODES)
    )
    assert again.request == first.request
    assert first.request.mounts == ["/data/user-1:/data", "/own:/own"]


def test_defaults_of_the_site_are_not_part_of_a_resubmit_request():
    site = Defaults(image="lab/torch", env={"A": "1", "B": "2"}, mounts=("/data/{user}:/data",))
    (only,) = admitted(site, env={"B": "3"}, mounts=["/own:/own"])
    left = without_defaults(only.request, user="user-1", defaults=site)
    assert (left.env, left.mounts) == ({"B": "3"}, ["/own:/own"])
    assert left.image == "lab/torch"


def test_a_job_without_an_image_may_have_mounts_if_the_engine_has_an_image():
    site = Defaults(are_contained=True, mounts=("pvc:home-{user}:/home",))
    (only,) = admitted(site, mounts=["pvc:data:/data"])
    assert only.request.mounts == ["pvc:home-user-1:/home", "pvc:data:/data"]
    assert only.request.image == ""


@pytest.mark.parametrize(
    ("mount", "parts"),
    [
        ("/a:/b", ("/a", "/b", False)),
        ("pvc:sets:/b:rw", ("pvc:sets", "/b", True)),
        ("pvc:sets/a/b:/c", ("pvc:sets/a/b", "/c", False)),
        ("nfs:files.lab:/export:/b:ro", ("nfs:files.lab:/export", "/b", False)),
    ],
)
def test_parse_mount(mount: str, parts: tuple[str, str, bool]):
    assert parse_mount(mount) == parts


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "a/b/train.py"], "train.py"),
        (["/usr/bin/true"], "true"),
        (["./run me.sh"], "run-me.sh"),
        (["~~~"], "job"),
    ],
)
def test_the_default_name_is_the_name_of_the_program(command: list[str], name: str):
    assert spec(command=command).name == name


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"command": []}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": ["x"] * 5000}, "command"),
        ({"name": "../../etc"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"gpus": "two"}, "gpus"),
        ({"gpus": "4..2"}, "gpus"),
        ({"gpus": "1.5"}, "gpus"),
        ({"gpus": "9"}, "gpus"),
        ({"gpus": "18", "gpus_per_worker": 9}, "gpus_per_worker"),
        ({"gpus": "9..12"}, "gpus"),
        ({"gpus": "0.5", "gpu_memory": "6GiB"}, "gpu_memory"),
        ({"gpus": "3", "gpus_per_worker": 2}, "gpus_per_worker"),
        ({"gpu_types": ["H100"]}, "gpu_types"),
        ({"cpus": -1.0}, "cpus"),
        ({"cpus": float("nan")}, "cpus"),
        ({"memory": "lots"}, "memory"),
        ({"priority": 10_000}, "priority"),
        ({"mode": "magic"}, "mode"),
        ({"epochs": 0.0}, "epochs"),
        ({"hours": float("inf")}, "hours"),
        ({"env": {"A-B": "x"}}, "env"),
        ({"env": {"../../A": "x"}}, "env"),
        ({"env": {"ROTA_TOKEN": "x"}}, "env"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env"),
        ({"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "env"),
        ({"env": {"A": "x" * 200_000}}, "env"),
        ({"workdir": "relative"}, "workdir"),
        ({"workdir": "/a/../../etc"}, "workdir"),
        ({"umask": 0o1000}, "umask"),
        ({"mounts": ["/a:/b"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["/a/../b:/c"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["/a:/b:rwx"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["/a:/b", "/c:/b/:rw"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["pvc:Sets:/b"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["pvc:sets/../x:/b"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["pvc:sets:b"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["nfs:server:export:/b"]}, "mounts"),
        ({"image": "lab/torch", "mounts": ["nfs:-:/export:/b"]}, "mounts"),
        ({"image": "--privileged"}, "image"),
        ({"ports": ["80"]}, "ports"),
        ({"ports": ["0:80"]}, "ports"),
        ({"snapshot": "../x"}, "snapshot"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"time_limit": "0"}, "time_limit"),
        ({"grace": "1y"}, "grace"),
        ({"retries": -1}, "retries"),
        ({"retry_on": [0]}, "retry_on"),
        ({"array": "5-1"}, "array"),
        ({"array": "0"}, "array"),
        ({"array": "0-99999"}, "array"),
    ],
)
def test_a_rejection_names_its_field(fields: dict[str, Any], field: str):
    assert refusal(**fields).startswith(f"{field}: {field}: ")


# -- categories ---------------------------------------------------------------------------------


def category(user: str = "user-1", defaults: Defaults = NOTHING, **fields: Any) -> str:
    request = JobRequest(**{"command": ["python", "train.py"], **fields})
    (only,) = admit(request, user=user, defaults=defaults, feasibility=FeasibilityChecker(NODES))
    return only.spec.category


def test_jobs_of_the_same_code_and_arguments_are_of_one_category():
    assert category() == category(priority=3, epochs=5, env={"SEED": "1"}, gpus="1..4")
    others = [
        category(command=["python", "train.py", "--wide"]),
        category(snapshot="0" * 64),
        category(image="lab/torch"),
        category(workdir="/elsewhere"),
    ]
    assert len({category(), *others}) == 5


def test_words_of_a_command_are_not_joined():
    assert category(command=["a", "b c"]) != category(command=["a b", "c"])


def test_a_given_name_or_category_takes_precedence_over_the_code():
    one, other = ["python", "one.py"], ["python", "other.py"]
    assert category(name="bert", command=one) == category(name="bert", command=other)
    assert category(category="bert", command=one) == category(name="bert", command=other)
    assert category(category="bert", name="x") == category(category="bert", name="y")
    assert category(name="train.py") != category()


def test_users_do_not_share_categories():
    assert category(user="user-1", name="bert") != category(user="user-2", name="bert")
    assert category(user="user-1") != category(user="user-2")


def test_workers_with_more_gpus_have_another_category():
    assert len({category(name="bert", gpus=gpus) for gpus in ("1", "0.5", "0")}) == 3
    assert category(name="bert", gpus="4", gpus_per_worker=2) != category(name="bert", gpus="4")


def test_jobs_of_different_sizes_share_a_category():
    assert len({category(name="bert", gpus=gpus) for gpus in ("1", "2", "1..4")}) == 1


def test_the_default_image_is_part_of_the_category():
    assert category(defaults=Defaults(image="lab/torch")) == category(image="lab/torch")


def test_several_workers_in_containers_need_the_network_of_the_machine():
    several = {"gpus": "1..4", "image": "torch", "processes": "per-gpu"}
    expected = "several workers in containers reach each other only on the machine's network"
    assert expected in refusal(**several)
    assert spec(**several, host_network=True).max_workers == 4
    assert spec(gpus="1..4", image="torch").max_workers == 4
    assert spec(gpus="1..4", processes="per-gpu").max_workers == 4


def test_pods_have_their_own_network():
    cluster_defaults = Defaults(are_contained=True)
    assert admitted(cluster_defaults, gpus="1..4", image="torch")
    with pytest.raises(RefusedError, match="pods have a network of their own"):
        admitted(cluster_defaults, host_network=True)


@pytest.mark.parametrize("host_network", [False, True])
def test_job_that_moved_here_gets_the_network_that_it_needs_here(host_network: bool):
    several: dict[str, Any] = {"gpus": "1..4", "image": "torch", "processes": "per-gpu"}
    several |= {"host_network": host_network, "is_moved": True}
    (on_the_machine,) = admitted(**several)
    assert on_the_machine.request.host_network
    (on_the_cluster,) = admitted(Defaults(are_contained=True), **several)
    assert not on_the_cluster.request.host_network
    (single,) = admitted(**{**several, "gpus": "1"})
    assert single.request.host_network is host_network


def test_copy_of_a_cluster_job_has_no_network_of_a_machine():
    """A request that the cluster accepted before the field existed reads as `host_network`."""
    old = JobRequest(["p"], image="torch", host_network=True)
    copied = without_defaults(old, user="user-1", defaults=Defaults(are_contained=True))
    assert not copied.host_network
    assert without_defaults(old, user="user-1", defaults=NOTHING).host_network


def edited(job: Job, **values: Any) -> JobEdited:
    nodes = FeasibilityChecker(NODES)
    return edit_event(job, JobEdit(**values), actor="ann", feasibility=nodes)


def queued_job(**fields: Any) -> Job:
    return new_job(JobSubmitted(JobId("a"), spec(**fields)), 0.0, known=None)


def test_the_fields_of_an_edit_are_those_of_the_table():
    assert {each.name for each in dataclasses.fields(JobEdit)} == edit_fields().keys()


def test_an_edit_is_written_as_a_submit():
    found = edited(queued_job(), time_limit="2h", retry_on=[75], memory="2GiB", priority=3)
    assert found == JobEdited(
        JobId("a"),
        "ann",
        priority=3,
        time_limit_s=7200.0,
        retry_on=frozenset({75}),
        memory_bytes=2 * GIB,
    )
    assert edited(queued_job(), time_limit="", gpu_types=[]) == JobEdited(
        JobId("a"), "ann", time_limit_s=math.inf, gpu_types=()
    )


def test_an_edited_job_of_an_array_keeps_its_index():
    job = queued_job()
    member = replace(job, spec=replace(job.spec, name="sweep[3]"))
    assert edited(member, name="other").name == "other[3]"


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({}, "", "names no field"),
        ({"priority": 1001}, "priority", "out of bounds"),
        ({"retries": -1}, "retries", "out of bounds"),
        ({"name": ""}, "name", "is not allowed"),
        ({"time_limit": "soon"}, "time_limit", "is not a time"),
        ({"memory": "6"}, "memory", "give a unit"),
        ({"gpu_types": ["H100"]}, "gpu_types", "can never run"),
    ],
)
def test_an_impossible_edit_is_refused(values: dict[str, Any], field: str, words: str):
    with pytest.raises(UserError, match=words) as caught:
        edited(queued_job(), **values)
    assert getattr(caught.value, "field", "") == field


def test_a_running_job_refuses_an_edit_of_its_resources():
    lab = Lab(NODES)
    lab.run(replace(spec(), name="a"))
    with pytest.raises(RefusedError, match="job a is running"):
        edited(lab.job("a"), priority=1, cpus=2.0)
    assert edited(lab.job("a"), retries=1).retries == 1


def test_a_job_that_no_node_can_run_now_is_edited():
    job, gone = queued_job(), FeasibilityChecker([])
    edit = edit_event(job, JobEdit(priority=-5), actor="ada", feasibility=gone)
    assert edit.priority == -5
    with pytest.raises(RefusedError, match="can never run"):
        edit_event(job, JobEdit(memory="1GiB"), actor="ada", feasibility=gone)


def test_an_edited_request_has_the_new_values():
    fields = {"name": "bert", "time_limit": "120m", "gpu_types": ["gpu"]}
    request = JobRequest(["train"], **fields)
    accepted = spec(command=["train"], **fields)
    assert with_edits(request, accepted) == request
    assert with_edits(request, replace(accepted, name="bert[7]")) == request
    changed = replace(
        accepted, name="new[7]", time_limit_s=math.inf, memory_bytes=GIB, retry_on=frozenset({9, 1})
    )
    assert with_edits(request, changed) == replace(
        request, name="new", time_limit="", memory="1GiB", retry_on=[1, 9]
    )


def test_a_request_that_an_earlier_version_accepted_stays_as_it_is():
    request = JobRequest(["train"], memory="6")
    assert with_edits(request, PLAIN) == request
