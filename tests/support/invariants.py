"""What must hold at every moment, whatever happened before. Each raises AssertionError."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from rota.core.kernel.kernel import Kernel
from rota.core.kernel.ledger import Ledger
from rota.core.lifecycle.states import JobState
from rota.core.lifecycle.transitions import stops_gracefully
from rota.core.model.allocation import Allocation, Slot
from rota.core.model.commands import ChangeMembership, Command, StartWorkers
from rota.core.model.effects import Transition
from rota.core.model.job import ActivePhase, Job, JobId, JobSpec, Running, Starting, Stopping
from rota.core.model.node import Node, NodeId
from rota.engines.virtual.run import Fence

OVER = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


def check_kernel(kernel: Kernel) -> None:
    """No node is overbooked, every booking belongs to a job, and every job has an allowed size.

    Workers that are gone stay booked until their whole attempt is, but hold nothing: their node
    may have come back smaller.
    """
    recount, held = Ledger(), Ledger()
    for job in kernel.jobs.values():
        recount.book(job.members, job.spec)
        held.book(_not_gone(job), job.spec)
        assert len(job.members) == len(job.numbers) == len(set(job.numbers)), job
        if isinstance(job.phase, Starting | Running):
            assert_fits(len(_next(job)), job.spec)
        _check_change(job)
    assert held.is_sound(kernel.nodes), "overbooked"
    assert recount.booked() == kernel.ledger.booked(), "booked by no job"


def _next(job: Job) -> Allocation:
    """The allocation that the job changes to. It may have lost some of its first workers."""
    joining = job.phase.joining if isinstance(job.phase, Running) else ()
    return joining or job.allocation


def _check_change(job: Job) -> None:
    """Worker numbers were given in this attempt, and a worker that stays keeps its slot."""
    phase = job.phase
    assert all(0 <= number < job.workers_numbered for number in job.numbers), job
    if not isinstance(phase, Running):
        return
    assert len(phase.allocation) == len(phase.numbers) > 0, job
    assert len(phase.joining) == len(phase.joining_numbers), job
    places = dict(zip(phase.numbers, phase.allocation, strict=True))
    for number, slot in zip(phase.joining_numbers, phase.joining, strict=True):
        assert places.get(number, slot) == slot, job
    assert phase.exits.keys() <= set(job.numbers), job


def _not_gone(job: Job) -> Allocation:
    exits = job.phase.exits if isinstance(job.phase, ActivePhase) else {}
    workers = zip(job.numbers, job.members, strict=True)
    return tuple(slot for number, slot in workers if number not in exits)


def check_asking(kernel: Kernel, now: float) -> None:
    """A job that is only asked to stop can receive the request and resume later, and is stopped by
    force in time."""
    for job in kernel.jobs.values():
        if isinstance(job.phase, Stopping) and job.phase.insists_at_s is not None:
            assert job.hears, job
            assert stops_gracefully(job, job.phase.purpose), job
            assert job.phase.insists_at_s == job.phase.since_s + job.spec.grace_s, job
            assert kernel.next_timer_s() <= max(now, job.phase.insists_at_s), job


def check_saved(kernel: Kernel) -> None:
    """What is saved was done, and what was not saved does not outlive its attempt."""
    for job in kernel.jobs.values():
        assert 0 <= job.epochs_saved <= job.epochs_done <= job.epochs, job
        assert job.lost_s >= 0, job
        assert job.is_active or job.epochs_done == job.epochs_saved, job


class Orders:
    """The commands that were sent so far."""

    def __init__(self) -> None:
        self._newest: dict[JobId, StartWorkers] = {}
        self._changes: dict[JobId, ChangeMembership] = {}

    def check(self, command: Command, spec: JobSpec) -> None:
        """A start has a slot for every worker of an allowed size. It begins a new attempt, or
        repeats the previous command."""
        if isinstance(command, StartWorkers | ChangeMembership):
            assert_fits(len(command.allocation), spec)
        if isinstance(command, StartWorkers):
            before = self._newest.get(command.job_id)
            is_next = before is None or before.attempt < command.attempt
            assert is_next or before == command, f"{command} after {before}"
            self._newest[command.job_id] = command
        elif isinstance(command, ChangeMembership):
            self._check_change(command)

    def _check_change(self, command: ChangeMembership) -> None:
        """A later generation, or the same order again. A worker that was left out never returns."""
        before = self._changes.get(command.job_id)
        self._changes[command.job_id] = command
        assert len(set(command.workers)) == len(command.workers), command
        if before is None or before.attempt != command.attempt:
            return
        assert before == command or before.generation < command.generation, (before, command)
        back = {n for n in command.workers if n <= max(before.workers)} - set(before.workers)
        assert not back, f"{command} after {before}"


def assert_fits(workers: int, spec: JobSpec) -> None:
    assert spec.min_workers <= workers <= spec.max_workers, (workers, spec)


def check_engine(
    running: Mapping[Fence, Mapping[int, Slot]],
    specs: Mapping[JobId, JobSpec],
    nodes: Mapping[NodeId, Node],
) -> None:
    """What really runs, counted without the kernel's help."""
    attempts = Counter(job_id for job_id, _ in running)
    assert all(count == 1 for count in attempts.values()), f"two attempts at once: {attempts}"
    held: dict[NodeId, list[tuple[Slot, JobSpec]]] = defaultdict(list)
    for (job_id, _), workers in running.items():
        for slot in workers.values():
            held[slot.node].append((slot, specs[job_id]))
    for node_id, workers in held.items():
        _check_node(nodes[node_id], workers)


def check_booked(kernel: Kernel, running: Mapping[Fence, Mapping[int, Slot]]) -> None:
    """Every worker that really runs is one that the kernel knows, in the slot that it booked."""
    for (job_id, attempt), workers in running.items():
        job = kernel.job(job_id)
        assert job is not None, f"{job_id} runs but is over"
        assert job.attempt == attempt, f"{job_id} runs attempt {attempt}, not {job.attempt}"
        booked = dict(zip(job.numbers, job.members, strict=True))
        assert workers.items() <= booked.items(), f"{job_id}: {workers} run, {booked} are booked"


def _check_node(node: Node, workers: Iterable[tuple[Slot, JobSpec]]) -> None:
    whole, shared = Counter[int](), Counter[int]()
    cpus = memory_bytes = n_workers = 0.0
    for slot, spec in workers:
        cpus += spec.cpus
        memory_bytes += spec.memory_bytes
        n_workers += 1
        (shared if spec.share else whole).update(
            dict.fromkeys(slot.gpus, slot.share_bytes if spec.share else 1)
        )
        assert len(slot.gpus) == (1 if spec.share else spec.gpus), (slot, spec)
    card_bytes = {gpu.index: gpu.memory_bytes for gpu in node.gpus}
    assert all(count == 1 for count in whole.values()), f"{node.id}: a GPU is held twice: {whole}"
    assert not whole.keys() & shared.keys(), f"{node.id}: a GPU is held whole and shared"
    assert all(shared[index] <= card_bytes[index] for index in shared), f"{node.id}: {shared}"
    assert cpus <= node.cpus + 1e-6, f"{node.id}: {cpus} CPUs"
    assert memory_bytes <= node.memory_bytes, f"{node.id}: {memory_bytes} bytes"
    assert n_workers <= node.max_workers, f"{node.id}: {n_workers} workers"


def check_story(story: Iterable[Transition]) -> None:
    """Terminal is final, each row begins where the last one ended, and no bug was met."""
    at: dict[JobId, JobState] = {}
    for row in story:
        assert row.before == at.get(row.job_id), row
        assert row.before not in OVER, row
        assert row.cause != "Bug", row
        at[row.job_id] = row.after
