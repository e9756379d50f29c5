"""The measurements of `benchmarks.one_box`, the same for every scheduler."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from time import perf_counter, sleep, time_ns

from benchmarks.one_box.peer import NotOfferedError, Peer
from benchmarks.support.markdown import MIB, Figure
from benchmarks.support.sandbox import wait_until

N_CLIENTS = 16
N_SLOTS = 8
N_FIRST_INSTRUCTIONS = 20
N_LISTS = 10
N_CRASHED = 20
IDLE_S = 20.0
PAUSE_S = 0.3


class OneBoxMeasure(Enum):
    """A row of the results: the measure and its aim."""

    SINGLES = f"submits one by one, {N_CLIENTS} clients", "500/s"
    BATCHES = "submits by the thousand", "5,000/s"
    SURVIVORS = f"survived a kill -9, of {N_CRASHED} submits", "all"
    NOOPS = f"no-ops through {N_SLOTS} slots, each", "15 ms"
    FIRST = "submit to the program's first instruction", "100 ms"
    LIST_EMPTY = "list, nothing known", ""
    LIST = "list, jobs known", "250 ms"
    IDLE = "daemons, idle", "1 %"
    MEMORY = "daemons, memory", "200 MiB"
    LOAD = "load of the machine before", ""

    def __init__(self, title: str, aim: str) -> None:
        self.title = title
        self.aim = aim


Measured = Iterator[tuple[OneBoxMeasure, Figure]]


def measure(peer: Peer) -> Measured:
    """Yield the results of all measurements that the peer supports."""
    # The load before the measurement, which slows it down.
    yield OneBoxMeasure.LOAD, Figure(os.getloadavg()[0], "")
    yield from _without_slots(peer)
    with tempfile.TemporaryDirectory() as folder:
        yield from _with_slots(peer, Path(folder))
    yield from _after_a_crash(peer)


def _without_slots(peer: Peer) -> Measured:
    amounts, n_known = peer.amounts, 0
    with peer.running(0):
        yield from _list(peer, OneBoxMeasure.LIST_EMPTY, note="")
        took_s = _timed(lambda: peer.submit_singles(amounts.n_single, N_CLIENTS))
        yield OneBoxMeasure.SINGLES, Figure(amounts.n_single / took_s, "/s")
        n_known += amounts.n_single
        try:
            took_s = _timed(lambda: _submit_batches(peer))
        except NotOfferedError:
            pass
        else:
            n_batched = amounts.n_batches * amounts.n_in_batch
            yield OneBoxMeasure.BATCHES, Figure(n_batched / took_s, "/s")
            n_known += n_batched
        yield from _list(peer, OneBoxMeasure.LIST, note=f"{n_known:,} jobs")
        yield from _idle(peer, note=f"{n_known:,} jobs")


def _with_slots(peer: Peer, folder: Path) -> Measured:
    with peer.running(N_SLOTS):
        # The first job also waits until the daemon has finished its start.
        _first_instruction_ms(peer, folder / "warm")
        times = [
            _first_instruction_ms(peer, folder / str(number))
            for number in range(N_FIRST_INSTRUCTIONS)
        ]
        yield OneBoxMeasure.FIRST, Figure(statistics.median(times), "ms")
        n_noops = peer.amounts.n_noops
        took_s = _timed(lambda: peer.run_noops(n_noops))
        yield OneBoxMeasure.NOOPS, Figure(1e3 * took_s / n_noops, "ms", f"{n_noops:,} jobs")


def _after_a_crash(peer: Peer) -> Measured:
    with peer.running(0):
        try:
            yield OneBoxMeasure.SURVIVORS, Figure(peer.survivors(N_CRASHED), "")
        except NotOfferedError:
            return


def _submit_batches(peer: Peer) -> None:
    for _ in range(peer.amounts.n_batches):
        peer.submit_many(peer.amounts.n_in_batch)


def _list(peer: Peer, what: OneBoxMeasure, *, note: str) -> Measured:
    try:
        peer.list_once()
    except NotOfferedError:
        return
    times = [1e3 * _timed(peer.list_once) for _ in range(N_LISTS)]
    yield what, Figure(statistics.median(times), "ms", note)


def _idle(peer: Peer, *, note: str) -> Measured:
    pids = peer.server_pids()
    sleep(PAUSE_S)
    before_s = sum(map(_cpu_s, pids))
    sleep(IDLE_S)
    used_s = sum(map(_cpu_s, pids)) - before_s
    yield OneBoxMeasure.IDLE, Figure(100 * used_s / IDLE_S, "%", note)
    yield OneBoxMeasure.MEMORY, Figure(sum(map(_resident_bytes, pids)) / MIB, "MiB", note)


def _first_instruction_ms(peer: Peer, file: Path) -> float:
    start_ns = time_ns()
    peer.submit_one(("sh", "-c", f"date +%s%N > {file}"))
    wait_until(lambda: _is_line(file), what="start of a job", every_s=0.002, within_s=60.0)
    # A job that is still ending would delay the next one.
    sleep(PAUSE_S)
    return (int(file.read_text()) - start_ns) / 1e6


def _is_line(file: Path) -> bool:
    return file.exists() and file.read_text().endswith("\n")


def _timed(work: Callable[[], object]) -> float:
    start_s = perf_counter()
    work()
    return perf_counter() - start_s


def _cpu_s(pid: int) -> float:
    # The process name may contain spaces and ends with the last bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
