"""What a start becomes: one order for each keeper. Pure, so that a dry run can show it."""

from rota.core.commands import StartWorkers
from rota.core.model import GIB, JobId, NodeId, Slot
from rota.engines.base import Account, Limits, Program
from rota.engines.local.hierarchies import Hierarchies
from rota.engines.local.order import Fence, Order
from rota.engines.local.render import Draw, Site, render

NODE = NodeId("n")
DRAW = Draw(port=29500, nonce="abc")


def orders(program: Program, *slots: Slot, site: Site | None = None) -> list[Order]:
    command = StartWorkers(JobId("job"), 1, 0, slots)
    rendered = render(command, program, site=site or Site(), draw=DRAW)
    assert list(rendered) == [Fence("job", 1, worker) for worker in range(len(slots))]
    return list(rendered.values())


def test_gpus_are_named_by_uuid() -> None:
    site = Site(visible_names={0: "GPU-a", 1: "GPU-b"})
    one, two = orders(Program(("p",)), Slot(NODE, (1,)), Slot(NODE, (0, 1)), site=site)
    assert one.env["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    assert two.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_a_worker_without_gpus_sees_none() -> None:
    [order] = orders(Program(("p",)), Slot(NODE))
    assert order.env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_worker_that_is_alone_with_several_gpus_may_start_processes_of_its_own() -> None:
    """Lightning, for one, waits for others as soon as it finds a local rank."""
    [alone] = orders(Program(("p",)), Slot(NODE, (0, 1)))
    assert not {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} & alone.env.keys()
    assert (alone.env["RANK"], alone.env["WORLD_SIZE"]) == ("0", "1")
    for slots in ([Slot(NODE, (0,))], [Slot(NODE, (0, 1)), Slot(NODE, (2, 3))]):
        last = orders(Program(("p",)), *slots)[-1]
        assert last.env["LOCAL_RANK"] == str(len(slots) - 1)


def test_a_share_is_held_to_its_memory_where_mps_runs() -> None:
    share = Slot(NODE, (1,), share_bytes=6 * GIB, fraction=0.5)
    [plain] = orders(Program(("p",)), share)
    assert plain.env["ROTA_GPU_MEMORY_BYTES"] == str(6 * GIB)
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in plain.env
    [held] = orders(Program(("p",)), share, site=Site(has_mps=True))
    assert held.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=6144M"


def test_only_wanted_groups_are_made() -> None:
    groups = Hierarchies({"kill": "/k"}, {"cpu": "/c", "memory": "/m"})
    site = Site(hierarchies=groups)
    [free] = orders(Program(("p",)), Slot(NODE), site=site)
    assert free.cgroups == {"kill": "/k/job~1~0"}
    [bounded] = orders(Program(("p",), limits=Limits(cpus=2)), Slot(NODE), site=site)
    assert bounded.cgroups == {"kill": "/k/job~1~0", "cpu": "/c/job~1~0"}


def test_the_engines_word_counts_more_than_the_jobs() -> None:
    env = {"RANK": "9", "CUDA_VISIBLE_DEVICES": "0,1,2", "HOME": "/elsewhere"}
    account = Account("ada", "/home/ada", uid=1000, gid=1000, groups=(27,))
    [order] = orders(Program(("p",), env, account=account), Slot(NODE, (3,)))
    assert (order.env["RANK"], order.env["CUDA_VISIBLE_DEVICES"]) == ("0", "3")
    assert order.env["HOME"] == "/elsewhere"
    assert (order.uid, order.gid, order.groups) == (1000, 1000, [27])
