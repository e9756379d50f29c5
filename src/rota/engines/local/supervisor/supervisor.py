"""The process that stands by one worker for life.

It starts the worker, writes down what it says, ends it when told to (SIGTERM; the attempt's stop
file says with how much grace), and records how it ended. It is the reaper of everything that
descends from the worker, and ends only when all of that has. Forked by the nursery; needs no
daemon.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import signal
import time
from typing import Any

from rota.engines.local import cgroups, ends, files, procs, signals, tree, wishes
from rota.engines.local.child import Stdio, become_worker
from rota.engines.local.order import KILLED_CODE, NEVER_STARTED, STOPPED_CODE, Ending, Fence, Order
from rota.engines.local.output import Output
from rota.engines.local.sessions import Sessions
from rota.engines.logfiles.writing import LogFile

LEFT_BEHIND_GRACE_S = 5.0
"""What a worker left behind when it ended gets to end by itself."""
KILL_AGAIN_S = 0.05
TELL_AGAIN_S = 0.05


def keep(root: str, folder: str, *, daemon_fd: int) -> None:
    """Run the worker of this folder to its end, unless somebody does or did already."""
    os.setsid()
    place = f"{root}/{folder}"
    lock = os.open(f"{place}/{files.LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    is_taken = any(files.read_json(f"{place}/{name}") for name in (files.KEEPER, files.EXIT))
    program = files.read_json(f"{place}/{files.PROGRAM}")
    if is_taken or program is None:
        return
    procs.become_reaper()
    Keeper(place, Fence.of_folder(folder), order=Order.of_json(program), daemon_fd=daemon_fd).run()


class Keeper:
    def __init__(self, place: str, fence: Fence, *, order: Order, daemon_fd: int) -> None:
        self._place = place
        self._fence = fence
        self._order = order
        self._daemon_fd = daemon_fd
        self._pid = 0
        self._main: ends.Main | None = None
        self._complaint = b""
        self._started_s = 0.0
        self._is_stopped = False
        self._kill_at = math.inf
        self._is_killed = False
        self._n_left_behind = 0
        self._has_to_tell = False
        self._poll = select.poll()
        self._signals_fd = signals.hear()
        self._poll.register(self._signals_fd, select.POLLIN)
        self._sessions = Sessions(place, order, poll=self._poll)
        self._exit_file = files.Reserved(f"{place}/{files.EXIT}")
        self._second_record = files.Reserved(f"{place}/{files.KEEPER}")
        self._complaint_fd = -1
        log_path = f"{place}/{order.log_name}"
        log = LogFile(log_path, file_bytes=order.log_file_bytes, n_files=order.log_files)
        self._output = Output(log)

    def run(self) -> None:
        notes = cgroups.make(self._order)
        files.write_json(f"{self._place}/{files.KEEPER}", self._record(notes))
        # After the record: a daemon that stops an attempt writes its wish first and looks for the
        # record second, so that one of the two sees the other.
        is_doomed = wishes.is_doomed(self._place)
        if is_doomed or wishes.grace_s(self._place) is not None:
            code = KILLED_CODE if is_doomed else STOPPED_CODE
            self._finish(Ending(code, NEVER_STARTED, is_stopped=True))
            return
        self._sessions.open()
        self._start()
        while self._has_descendants():
            self._turn()
        if self._order.cleanup:
            self._clean_up()
        self._drain()
        self._finish(self._ending())

    # -- the start ------------------------------------------------------------------------------

    def _record(self, notes: list[str]) -> dict[str, Any]:
        identity = procs.Identity.of_pid(os.getpid())
        assert identity is not None
        return {
            **identity._asdict(),
            "marker": self._order.marker,
            "cgroups": self._order.cgroups,
            "notes": notes,
            "worker_pid": self._pid,
            "started_s": self._started_s,
        }

    def _start(self) -> None:
        self._complaint_fd, complaint_fd = os.pipe2(os.O_CLOEXEC)
        # A SIGTERM in between must reach the program, not the copy of the keeper before it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._pid = os.fork()
        if self._pid == 0:
            stdio = Stdio.of_output(self._output.worker_fd)
            become_worker(self._order, stdio=stdio, complaint_fd=complaint_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(self._output.worker_fd)
        os.close(complaint_fd)
        self._poll.register(self._output.fd, select.POLLIN)
        self._poll.register(self._complaint_fd, select.POLLIN)

    # -- the life -------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait until something happens, and see to it."""
        for fd, _ in self._poll.poll(self._wait_ms()):
            if fd == self._signals_fd:
                self._heed_signals()
            elif fd == self._output.fd:
                if not self._output.read():
                    self._poll.unregister(fd)
            elif fd == self._complaint_fd:
                self._read_complaint()
            else:
                self._sessions.heed(fd)
        if self._has_to_tell:
            self._tell_started()
        now = time.monotonic()
        self._sessions.kill_due(now)
        if now >= self._kill_at:
            self._kill()

    def _wait_ms(self) -> float | None:
        waits = [min(self._kill_at, self._sessions.next_s()) - time.monotonic()]
        if self._has_to_tell:
            waits.append(TELL_AGAIN_S)
        wait_s = min(waits)
        return None if math.isinf(wait_s) else max(0.0, wait_s * 1000)

    def _heed_signals(self) -> None:
        numbers = os.read(self._signals_fd, 4096)
        if signal.SIGTERM not in numbers:
            return
        if wishes.is_doomed(self._place):
            self._kill_at = time.monotonic()
        else:
            self._stop()

    def _read_complaint(self) -> None:
        """Nothing but the end means that the program runs."""
        chunk = os.read(self._complaint_fd, 4096)
        self._complaint += chunk
        if chunk:
            return
        self._poll.unregister(self._complaint_fd)
        os.close(self._complaint_fd)
        # Its number is soon another file's.
        self._complaint_fd = -1
        if not self._complaint:
            self._started_s = time.time()
            self._second_record.publish(self._record([]), is_durable=False)
            self._has_to_tell = True

    def _tell_started(self) -> None:
        try:
            os.write(self._daemon_fd, f"started {self._fence.folder}".encode())
        except BlockingIOError:
            return
        except OSError:
            pass
        self._has_to_tell = False

    # -- the end --------------------------------------------------------------------------------

    def _has_descendants(self) -> bool:
        """Reap whatever ended. The kernel knows best whether anything is left: everything below
        the worker is this process's child as soon as its own parent is gone."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            end = ends.Main.of_wait(status, usage)
            self._sessions.reaped(pid, end.code)
            if pid == self._pid:
                self._main = end
                self._end_the_rest()

    def _end_the_rest(self) -> None:
        """The worker ended; what it left behind has to follow. After a stop it has all the time
        that was given: a shell may end at once while the program that it ran saves its work."""
        if not self._has_children():
            return
        self._sessions.end_all()
        if self._order.cleanup or not self._is_stopped:
            self._n_left_behind = tree.ask_to_end(self._own_members)
        if not self._is_stopped:
            grace_s = min(self._order.grace_s, LEFT_BEHIND_GRACE_S)
            self._kill_at = min(self._kill_at, time.monotonic() + grace_s)

    def _has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _members(self) -> procs.Found:
        return procs.descendants(os.getpid())

    def _own_members(self) -> procs.Found:
        """Without what was run beside the worker: that is looked up in between, so that what
        comes and goes meanwhile is not taken for the worker's."""
        before, others = self._members(), self._sessions.members()
        return dict((before.items() & self._members().items()) - others.items())

    def _stop(self) -> None:
        """Again with less grace is fine; with more, the first word stands."""
        wish = wishes.grace_s(self._place)
        self._is_stopped = True
        self._sessions.end_all()
        grace_s = self._order.grace_s if wish is None else wish
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)
        if self._order.cleanup and self._main is None:
            # A container's tool hands it on to the program, and is needed until that has ended.
            os.kill(self._pid, signal.SIGTERM)
        else:
            tree.ask_to_end(self._members)

    def _kill(self) -> None:
        self._is_killed = True
        cgroups.kill(self._order.cgroups)
        tree.end(self._members)
        self._kill_at = time.monotonic() + KILL_AGAIN_S

    def _clean_up(self) -> None:
        """Waited for however long it takes: what it removes may still hold the GPU."""
        pid = os.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            order = self._order._replace(argv=self._order.cleanup, workdir="/", cgroups={})
            become_worker(order, stdio=Stdio.of_output(null), complaint_fd=null)
        os.waitpid(pid, 0)
        while self._has_descendants():
            self._kill()

    def _drain(self) -> None:
        """What is still in the pipes."""
        if not self._started_s and not self._complaint:
            self._read_complaint()
        self._output.finish()

    def _ending(self) -> Ending:
        assert self._main is not None
        ending = Ending(
            code=self._main.code,
            is_stopped=self._is_stopped,
            is_killed=self._is_killed,
            n_left_behind=self._n_left_behind,
            n_dropped_bytes=self._output.log.n_dropped_bytes,
            started_s=self._started_s,
            ended_s=time.time(),
            cpu_s=self._main.cpu_s,
            max_rss_bytes=self._main.max_rss_bytes,
        )
        if self._complaint:
            return ends.never_ran(ending, self._complaint)
        return ends.in_words(
            ending,
            self._order,
            log=self._output.log,
            is_signalled=self._main.is_signalled,
            is_out_of_memory=cgroups.ran_out_of_memory(self._order.cgroups),
        )

    def _finish(self, ending: Ending) -> None:
        """A daemon that watches writes the end into its own store, durably, at once. The disk is
        waited for only when there is none, because that takes longer than all the rest."""
        cgroups.remove(self._order.cgroups)
        self._sessions.close()
        self._second_record.drop()
        self._exit_file.publish(ending._asdict(), is_durable=not self._is_watched())
        os._exit(0)

    def _is_watched(self) -> bool:
        poll = select.poll()
        poll.register(self._daemon_fd, 0)
        return not poll.poll(0)
