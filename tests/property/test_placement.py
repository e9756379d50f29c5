"""Invariants of every placement, counted independently of the placement code."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.model.allocation import Allocation, Slot, n_nodes
from rota.core.model.job import GpuShare, Job, JobId, Running
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.model.units import GIB
from rota.core.placement.placer import Placement
from rota.core.scheduling.plan import diff
from rota.core.scheduling.view import View
from tests.support.seed_counts import count
from tests.unit.core.view_builders import CARD_BYTES, Request, job, place_all, spots, view

FAST = frozenset({("disk", "fast")})


@dataclass(frozen=True)
class Scene:
    """A cluster with running jobs, and the next requests of these and other jobs."""

    before: View
    requests: list[Request]
    movable: frozenset[JobId]

    def __repr__(self) -> str:
        cluster = [
            f"{n.id}:{len(n.gpus)}{n.gpus[0].type if n.gpus else ''}{'!' * n.is_draining}"
            for n in self.before.nodes.values()
        ]
        held = [f"{job_id} on {spots(a)}" for job_id, a in self.before.planned.items()]
        requests = [
            f"{w.job.id} {w.workers}x{w.job.spec.share or w.job.spec.gpus}{w.gpu_type}"
            for w in self.requests
        ]
        return f"{cluster}, {held}, wishes {requests}, movable {sorted(self.movable)}"


def running_in(allocation: Allocation) -> Running:
    return Running(-3600.0, allocation, tuple(range(len(allocation))))


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    n_nodes = draw(st.integers(1, 5))
    is_limited = draw(st.booleans())
    cluster: list[Node] = []
    for place_in_list in range(n_nodes):
        gpu_type = draw(st.sampled_from("AAAB"))
        n_gpus = draw(st.sampled_from([0, 1, 2, 4, 4, 8]))
        limits: dict[str, Any] = {}
        if is_limited:
            limits = {
                "cpus": draw(st.sampled_from([2.0, 8.0, math.inf])),
                "memory_bytes": draw(st.sampled_from([8 * GIB, 64 * GIB])),
                "max_workers": draw(st.sampled_from([3, math.inf])),
                "labels": draw(st.sampled_from([frozenset(), FAST])),
            }
        gpus = tuple(Gpu(index, gpu_type, CARD_BYTES) for index in range(n_gpus))
        cluster.append(Node(NodeId(f"n{place_in_list}"), gpus, **limits))
    return cluster


@st.composite
def new_jobs(draw: st.DrawFn, name: str) -> Job:
    kind = draw(st.sampled_from(["whole", "whole", "whole", "share", "none"]))
    changes: dict[str, Any] = {"gpus": draw(st.sampled_from([1, 1, 1, 2, 3]))}
    if kind == "share":
        fraction = draw(st.sampled_from([0.1, 0.3, 0.5, 0.7, 1.0]))
        changes["share"] = GpuShare(fraction=fraction)
        changes["memory_bytes_seen"] = draw(st.sampled_from([0, 0, 2 * GIB, CARD_BYTES]))
    elif kind == "none":
        changes["gpus"] = 0
    if draw(st.integers(0, 3)) == 0:
        changes["cpus"] = draw(st.sampled_from([0.5, 1.0, 2.0]))
        changes["memory_bytes"] = draw(st.sampled_from([0, GIB, 4 * GIB]))
    if draw(st.integers(0, 7)) == 0:
        changes["node_labels"] = FAST
    changes["priority"] = draw(st.sampled_from([0, 0, 0, 1]))
    return job(name, "1..9", **changes)


@st.composite
def requests_for(draw: st.DrawFn, jobs: list[Job]) -> list[Request]:
    return [
        Request(each, draw(st.integers(1, 9)), draw(st.sampled_from("AAAB")) * each.spec.uses_gpus)
        for each in jobs
    ]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    cluster = draw(clusters())
    first = draw(requests_for([draw(new_jobs(f"a{i}")) for i in range(draw(st.integers(0, 8)))]))
    held = place_all(view(cluster, *(each.job for each in first)), first)
    running = [
        replace(each.job, phase=running_in(held.allocations[each.job.id]))
        for each in first
        if each.job.id in held.allocations
    ]
    draining = draw(st.sets(st.sampled_from(cluster), max_size=1)) if draw(st.booleans()) else ()
    changed = [replace(node, is_draining=node in draining) for node in cluster]
    coming = [draw(new_jobs(f"b{i}")) for i in range(draw(st.integers(0, 5)))]
    before = view(changed, *running, *coming)
    wanted = [each for each in (*running, *coming) if draw(st.integers(0, 5))]
    requests = draw(requests_for(wanted))
    kept_types = [
        replace(each, gpu_type=before.gpu_types.get(each.job.id, each.gpu_type))
        if draw(st.integers(0, 5))
        else each
        for each in requests
    ]
    same_size = [
        replace(each, workers=len(before.planned.get(each.job.id, ())) or each.workers)
        if draw(st.booleans())
        else each
        for each in kept_types
    ]
    movable = draw(st.sets(st.sampled_from([each.id for each in running]))) if running else set()
    return Scene(before, same_size, frozenset(movable))


def fresh(scene: Scene) -> Placement:
    """The same requests on the same nodes, empty."""
    jobs = [each.job for each in scene.requests]
    waiting = [job(each.id, "1..9", **_fields(each)) for each in jobs]
    cluster = list(scene.before.nodes.values())
    requests = [
        replace(request, job=each) for request, each in zip(scene.requests, waiting, strict=True)
    ]
    return place_all(view(cluster, *waiting), requests)


def _fields(of: Job) -> dict[str, Any]:
    spec = of.spec
    names = ("gpus", "share", "cpus", "memory_bytes", "node_labels", "priority")
    fields = {name: getattr(spec, name) for name in names}
    return {**fields, "memory_bytes_seen": of.memory_bytes_seen}


def after(scene: Scene) -> Placement:
    return place_all(scene.before, scene.requests, movable=scene.movable)


class Counted:
    """The use of every GPU and node, by plain counting."""

    def __init__(self, jobs: dict[JobId, Job], allocations: dict[JobId, Allocation]) -> None:
        self.whole: Counter[tuple[NodeId, int]] = Counter()
        self.shared_bytes: Counter[tuple[NodeId, int]] = Counter()
        self.cpus: dict[NodeId, float] = defaultdict(float)
        self.memory_bytes: Counter[NodeId] = Counter()
        self.workers: Counter[NodeId] = Counter()
        for job_id, allocation in allocations.items():
            for slot in allocation:
                self._add(jobs[job_id], slot)

    def _add(self, of: Job, slot: Slot) -> None:
        self.cpus[slot.node] += of.spec.cpus
        self.memory_bytes[slot.node] += of.spec.memory_bytes
        self.workers[slot.node] += 1
        for index in slot.gpus:
            if slot.share_bytes:
                self.shared_bytes[slot.node, index] += slot.share_bytes
            else:
                self.whole[slot.node, index] += 1

    def assert_fits(self, cluster: dict[NodeId, Node]) -> None:
        cards = {(n.id, gpu.index): gpu for n in cluster.values() for gpu in n.gpus}
        assert all(n == 1 for n in self.whole.values())
        assert not self.whole.keys() & self.shared_bytes.keys()
        assert (self.whole.keys() | self.shared_bytes.keys()) <= cards.keys()
        assert all(used <= cards[card].memory_bytes for card, used in self.shared_bytes.items())
        for node_id, workers in self.workers.items():
            node = cluster[node_id]
            assert workers <= node.max_workers
            assert self.cpus[node_id] <= node.cpus + 1e-6
            assert self.memory_bytes[node_id] <= node.memory_bytes

    def room_for(self, request: Request, node: Node) -> int:
        """How many workers of the request fit on the node beside the counted use."""
        spec = request.job.spec
        if node.is_draining or not spec.node_labels <= node.labels:
            return 0
        bounds = [node.max_workers - self.workers[node.id]]
        if spec.cpus:
            bounds.append((node.cpus - self.cpus[node.id] + 1e-6) // spec.cpus)
        if spec.memory_bytes:
            bounds.append((node.memory_bytes - self.memory_bytes[node.id]) // spec.memory_bytes)
        if spec.uses_gpus:
            bounds.append(self._room_on_cards(request, node))
        return int(min(*bounds, 1000))

    def _room_on_cards(self, request: Request, node: Node) -> int:
        spec = request.job.spec
        cards = [
            gpu
            for gpu in node.gpus
            if gpu.type == request.gpu_type and not self.whole[node.id, gpu.index]
        ]
        if spec.share is None:
            free = [gpu for gpu in cards if not self.shared_bytes[node.id, gpu.index]]
            return len(free) // spec.gpus
        need = request.demand.share_bytes(CARD_BYTES)
        return sum((CARD_BYTES - self.shared_bytes[node.id, gpu.index]) // need for gpu in cards)


def counted(scene: Scene, placed: Placement, *, without: JobId | None = None) -> Counted:
    others = {job_id: a for job_id, a in placed.allocations.items() if job_id != without}
    return Counted(dict(scene.before.jobs), others)


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_never_more_workers_on_a_gpu_or_a_node_than_fit(scene: Scene) -> None:
    counted(scene, after(scene)).assert_fits(dict(scene.before.nodes))


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_every_slot_meets_its_request(scene: Scene) -> None:
    placed = after(scene)
    for request in scene.requests:
        allocation = placed.allocations.get(request.job.id, ())
        assert len(allocation) == request.workers or request.job.id in placed.short
        spec = request.job.spec
        for slot in allocation:
            node = scene.before.nodes[slot.node]
            assert spec.node_labels <= node.labels
            assert not node.is_draining
            assert len(slot.gpus) == (1 if spec.share else spec.gpus)
            assert bool(slot.share_bytes) == bool(spec.share)
            assert {node.gpus[index].type for index in slot.gpus} <= {request.gpu_type}


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_no_new_job_spans_nodes_while_one_node_has_room_for_all_of_it(scene: Scene) -> None:
    """Also not at the end, when all are placed: even with the job's own slots given back."""
    placed = fresh(scene)
    for request in scene.requests:
        allocation = placed.allocations.get(request.job.id, ())
        if n_nodes(allocation) > 1:
            others = counted(scene, placed, without=request.job.id)
            nodes = scene.before.nodes.values()
            assert all(others.room_for(request, node) < request.workers for node in nodes)


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_no_moved_job_spans_nodes_needlessly(scene: Scene) -> None:
    """This holds for a job whose size changes, too. Only an unchanged job may keep spanning nodes.
    A job that moves later may free a node, so only rounds without freed slots are checked."""
    placed = after(scene)
    has_given_back = any(
        set(change.before) - set(change.after)
        for change in diff(scene.before.planned, placed.allocations)
        if change.job_id in placed.allocations
    )
    for request in scene.requests:
        allocation = placed.allocations.get(request.job.id, ())
        is_new = len(allocation) != len(scene.before.planned.get(request.job.id, ()))
        if is_new and not has_given_back and n_nodes(allocation) > 1:
            others = counted(scene, placed, without=request.job.id)
            nodes = scene.before.nodes.values()
            assert all(others.room_for(request, node) < request.workers for node in nodes)


@st.composite
def repacks(draw: st.DrawFn) -> Scene:
    """Equal nodes with scattered jobs that are all placed again."""
    size = draw(st.sampled_from([2, 4]))
    cluster = [
        Node(NodeId(f"n{i}"), tuple(Gpu(index, "A", CARD_BYTES) for index in range(size)))
        for i in range(draw(st.integers(2, 5)))
    ]
    cards = [Slot(node.id, (gpu.index,)) for node in cluster for gpu in node.gpus]
    rest = draw(st.permutations(cards))
    running: list[Job] = []
    while rest and len(running) < draw(st.integers(1, 6)):
        workers = draw(st.integers(1, min(5, len(rest))))
        held, rest = tuple(rest[:workers]), rest[workers:]
        running.append(job(f"a{len(running)}", "1..9", phase=running_in(held)))
    before = view(cluster, *running)
    requests = [Request(each, len(each.allocation), "A") for each in running]
    return Scene(before, requests, frozenset(each.id for each in running))


@settings(max_examples=count(1_000))
@given(scene=repacks())
def test_a_job_that_is_placed_again_moves_only_to_fewer_nodes(scene: Scene) -> None:
    """Even alone, with all its slots given up: it stays on its nodes, unless fewer are enough."""
    for request in scene.requests:
        was = scene.before.planned[request.job.id]
        after = place_all(scene.before, [request], movable={request.job.id}).allocations
        now = after[request.job.id]
        stays = {slot.node for slot in now} <= {slot.node for slot in was}
        assert stays or n_nodes(now) < n_nodes(was)


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_placement_is_deterministic(scene: Scene) -> None:
    first, again = after(scene), after(scene)
    assert list(first.allocations.items()) == list(again.allocations.items())
    assert first.short == again.short


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_workers_keep_their_numbers_and_unchanged_jobs_their_allocation(scene: Scene) -> None:
    placed = after(scene)
    draining = {node.id for node in scene.before.nodes.values() if node.is_draining}
    for request in scene.requests:
        job_id = request.job.id
        was = scene.before.planned.get(job_id, ())
        now = placed.allocations.get(job_id, ())
        for number, slot in enumerate(was[: request.workers]):
            if slot.gpus and not slot.share_bytes and slot in now:
                assert now.index(slot) == number
        is_free_to_stay = job_id not in scene.movable and draining.isdisjoint(
            slot.node for slot in was
        )
        is_same_type = scene.before.gpu_types.get(job_id) == request.gpu_type
        if was and len(was) == request.workers and is_free_to_stay and is_same_type:
            assert now is was


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_short_counts_what_fits(scene: Scene) -> None:
    """Beside all the others, so many workers fit as it says, and fewer than were asked for."""
    placed = after(scene)
    nodes = scene.before.nodes.values()
    for request in scene.requests:
        if request.job.id not in placed.short:
            continue
        others = counted(scene, placed, without=request.job.id)
        fits = sum(others.room_for(request, node) for node in nodes)
        kept = len(placed.allocations.get(request.job.id, ()))
        assert placed.short[request.job.id] == max(fits, kept)
        assert fits < request.workers


@settings(max_examples=count(1_000))
@given(scene=scenes())
def test_a_running_job_that_could_stay_is_never_without_a_place(scene: Scene) -> None:
    placed = after(scene)
    draining = {node.id for node in scene.before.nodes.values() if node.is_draining}
    for request in scene.requests:
        was = scene.before.planned.get(request.job.id, ())
        can_stay = request.job.id not in scene.movable and draining.isdisjoint(s.node for s in was)
        if was and can_stay and scene.before.gpu_types[request.job.id] == request.gpu_type:
            assert len(placed.allocations[request.job.id]) >= min(len(was), request.workers)
