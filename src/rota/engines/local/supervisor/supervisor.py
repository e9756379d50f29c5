"""The supervisor of one worker at a time.

It starts the worker, stores its output, stops it on SIGTERM (the attempt's stop file holds the
grace period) and writes the exit record. It is the subreaper of all descendants of the worker and
waits for the end of all of them. The fork server forks it; it needs no daemon after that. Without a
daemon it ends after its worker. With a daemon it then waits for another worker, because a fork and
the copies of memory pages after it cost more than everything else that a short worker needs.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import select
import signal
import time
from typing import Any, NamedTuple

from rota.engines.local.supervisor import (
    cgroups,
    exit_reason,
    kill_tree,
    proc,
    signals,
    state_files,
)
from rota.engines.local.supervisor.channel import receive
from rota.engines.local.supervisor.exec_sessions import ExecServer
from rota.engines.local.supervisor.exec_worker import Stdio, exec_worker
from rota.engines.local.supervisor.log_pipe import LogPipe
from rota.engines.local.supervisor.records import (
    KILLED_CODE,
    NEVER_STARTED,
    STOPPED_CODE,
    ExitRecord,
    WorkerKey,
    WorkerSpec,
)
from rota.engines.logfiles.writer import LogFile

LEFT_BEHIND_GRACE_S = 5.0
"""Grace period for processes that a worker left behind when it ended."""
KILL_AGAIN_S = 0.05
REPORT_START_S = 0.01
"""A start is reported after this time, or together with the exit if the worker ends before: every
report costs the daemon a write."""
REPORT_RETRY_S = 0.05


class SupervisorProcess(NamedTuple):
    """What a supervisor keeps from worker to worker."""

    identity: proc.ProcessIdentity
    daemon_fd: int
    """Messages to the daemon that requested the supervisor. It hangs up when the daemon ends."""
    signals_fd: int


def run_supervisor(root: str, folder: str, *, daemon_fd: int, channel_fd: int) -> None:
    """Run the worker of this directory to its end, then others, until there is no daemon."""
    os.setsid()
    proc.become_subreaper()
    identity = proc.ProcessIdentity.of_pid(os.getpid())
    assert identity is not None
    process = SupervisorProcess(identity, daemon_fd, signals.open_signal_fd())
    while folder and _run_worker(root, folder, process=process):
        folder = receive(channel_fd).decode()


def _run_worker(root: str, folder: str, *, process: SupervisorProcess) -> bool:
    """Run one worker to its end, unless another supervisor does or did. Returns whether the daemon
    knows that this supervisor is free again."""
    # A signal for the previous worker. A stop request for this worker is in a file.
    signals.drain(process.signals_fd)
    worker_dir = f"{root}/{folder}"
    lock = os.open(f"{worker_dir}/{state_files.LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    is_taken = state_files.read_json(f"{worker_dir}/{state_files.SUPERVISOR_FILE}")
    is_over = os.path.exists(f"{worker_dir}/{state_files.EXIT}")
    program = state_files.read_json(f"{worker_dir}/{state_files.PROGRAM}")
    spec = None if program is None else WorkerSpec.of_json(program)
    if is_taken or is_over or spec is None:
        return False
    key = WorkerKey.of_folder(folder)
    exit_record = Supervisor(worker_dir, key, spec=spec, process=process).run()
    os.close(lock)
    return _report_end(process.daemon_fd, folder, exit_record=exit_record)


def _report_end(daemon_fd: int, folder: str, *, exit_record: ExitRecord) -> bool:
    """Tell the daemon about the end; False if it cannot be told. Then it sees the end of this
    process instead."""
    try:
        os.write(daemon_fd, f"ended {folder} {json.dumps(exit_record._asdict())}".encode())
    except OSError:
        return False
    return True


class Supervisor:
    def __init__(
        self, worker_dir: str, key: WorkerKey, *, spec: WorkerSpec, process: SupervisorProcess
    ) -> None:
        self._worker_dir = worker_dir
        self._key = key
        self._spec = spec
        self._identity, self._daemon_fd, self._signals_fd = process
        self._pid = 0
        self._main: exit_reason.MainProcessExit | None = None
        self._exec_error = b""
        self._started_s = 0.0
        self._is_stopped = False
        self._kill_at = math.inf
        self._is_killed = False
        self._n_left_behind = 0
        self._report_start_at = math.inf
        self._is_listening = False
        self._poll = select.poll()
        self._poll.register(self._signals_fd, select.POLLIN)
        self._exec_server = ExecServer(worker_dir, spec, poll=self._poll)
        self._exit_file = state_files.ReservedFile(f"{worker_dir}/{state_files.EXIT}")
        self._second_record = state_files.ReservedFile(
            f"{worker_dir}/{state_files.SUPERVISOR_FILE}"
        )
        self._status_fd = -1
        log_path = f"{worker_dir}/{spec.log_name}"
        log = LogFile(log_path, file_bytes=spec.log_file_bytes, n_files=spec.log_files)
        self._log_pipe = LogPipe(log)

    def run(self) -> ExitRecord:
        notes = cgroups.make(self._spec)
        state_files.write_json(
            f"{self._worker_dir}/{state_files.SUPERVISOR_FILE}", self._record(notes)
        )
        # Check for requests only after the file is written: the daemon writes its request first and
        # looks for the file second, so that at least one of the two sees the other.
        is_kill_requested = state_files.is_kill_requested(self._worker_dir)
        if is_kill_requested or state_files.is_stop_requested(self._worker_dir):
            code = KILLED_CODE if is_kill_requested else STOPPED_CODE
            os.close(self._log_pipe.worker_fd)
            return self._finish(ExitRecord(code, NEVER_STARTED, is_stopped=True))
        self._start()
        while self._has_descendants():
            self._poll_once()
        if self._spec.cleanup:
            self._clean_up()
        self._drain()
        return self._finish(self._exit_record())

    # -- start ----------------------------------------------------------------------------------

    def _record(self, notes: list[str]) -> dict[str, Any]:
        return {
            **self._identity._asdict(),
            "marker": self._spec.marker,
            "cgroups": self._spec.cgroups,
            "notes": notes,
            "worker_pid": self._pid,
            "started_s": self._started_s,
        }

    def _start(self) -> None:
        self._status_fd, status_fd = os.pipe2(os.O_CLOEXEC)
        # A SIGTERM must reach the program, not the copy of the supervisor before execve.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._pid = cgroups.fork_into(self._spec)
        if self._pid == 0:
            stdio = Stdio.of_output(self._log_pipe.worker_fd)
            exec_worker(self._spec, stdio=stdio, status_fd=status_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(self._log_pipe.worker_fd)
        os.close(status_fd)
        self._poll.register(self._log_pipe.fd, select.POLLIN)
        self._poll.register(self._status_fd, select.POLLIN)

    # -- main loop ------------------------------------------------------------------------------

    def _poll_once(self) -> None:
        """Wait for the next event or deadline and handle it."""
        for fd, _ in self._poll.poll(self._wait_ms()):
            if fd == self._signals_fd:
                self._handle_signals()
            elif fd == self._log_pipe.fd:
                if not self._log_pipe.read():
                    self._poll.unregister(fd)
            elif fd == self._status_fd:
                self._read_exec_error()
            else:
                self._exec_server.handle(fd)
        now = time.monotonic()
        if now >= self._report_start_at:
            self._report_start(now)
        self._exec_server.kill_due(now)
        if now >= self._kill_at:
            self._kill()

    def _wait_ms(self) -> float | None:
        next_s = min(self._kill_at, self._report_start_at, self._exec_server.next_s())
        return None if math.isinf(next_s) else max(0.0, (next_s - time.monotonic()) * 1000)

    def _handle_signals(self) -> None:
        numbers = os.read(self._signals_fd, 4096)
        if signal.SIGTERM not in numbers:
            return
        if state_files.is_kill_requested(self._worker_dir):
            self._kill_at = time.monotonic()
        else:
            self._stop()

    def _read_exec_error(self) -> None:
        """Read the status pipe. Its end without a message means that the program runs."""
        chunk = os.read(self._status_fd, 4096)
        self._exec_error += chunk
        if chunk:
            return
        self._poll.unregister(self._status_fd)
        os.close(self._status_fd)
        # Another file may soon get this descriptor number.
        self._status_fd = -1
        if not self._exec_error:
            self._started_s = time.time()
            self._report_start_at = time.monotonic() + REPORT_START_S

    def _report_start(self, now: float) -> None:
        if not self._is_listening:
            # Nobody runs commands beside a worker before its start is reported.
            self._exec_server.open()
            self._is_listening = True
        self._second_record.publish(self._record([]), is_durable=False)
        try:
            os.write(self._daemon_fd, f"started {self._key.folder}".encode())
        except BlockingIOError:
            self._report_start_at = now + REPORT_RETRY_S
            return
        except OSError:
            pass
        self._report_start_at = math.inf

    # -- exit -----------------------------------------------------------------------------------

    def _has_descendants(self) -> bool:
        """Reap ended children; return whether any child is left. No child means no descendant: an
        orphaned descendant becomes a child of this subreaper."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            end = exit_reason.MainProcessExit.of_wait(status, usage)
            self._exec_server.reaped(pid, end.code)
            if pid == self._pid:
                self._main = end
                self._end_the_rest()

    def _end_the_rest(self) -> None:
        """End the processes that the worker left behind. After a stop they keep the whole grace
        period: a shell may end at once while its program still saves its work."""
        if not self._has_children():
            return
        self._exec_server.end_all()
        if self._spec.cleanup or not self._is_stopped:
            self._n_left_behind = kill_tree.terminate_all(self._own_members)
        if not self._is_stopped:
            grace_s = min(self._spec.grace_s, LEFT_BEHIND_GRACE_S)
            self._kill_at = min(self._kill_at, time.monotonic() + grace_s)

    def _has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _members(self) -> proc.ProcessTable:
        return proc.descendants(os.getpid())

    def _own_members(self) -> proc.ProcessTable:
        """Descendants without those of exec sessions. Descendants are listed before and after the
        sessions, so that a short-lived process of a session is not counted as the worker's."""
        before, others = self._members(), self._exec_server.members()
        return dict((before.items() & self._members().items()) - others.items())

    def _stop(self) -> None:
        """Stop the worker. A repeated stop can shorten the grace period but not extend it."""
        requested_s = state_files.requested_grace_s(self._worker_dir)
        self._is_stopped = True
        self._exec_server.end_all()
        grace_s = self._spec.grace_s if requested_s is None else requested_s
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)
        if self._spec.cleanup and self._main is None:
            # The container tool forwards the signal to the program and must outlive it.
            os.kill(self._pid, signal.SIGTERM)
        else:
            kill_tree.terminate_all(self._members)

    def _kill(self) -> None:
        self._is_killed = True
        cgroups.kill(self._spec.cgroups)
        kill_tree.kill_all(self._members)
        self._kill_at = time.monotonic() + KILL_AGAIN_S

    def _clean_up(self) -> None:
        """Run the cleanup command and wait without a limit: the container may hold the GPU."""
        pid = os.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            spec = self._spec._replace(argv=self._spec.cleanup, workdir="/", cgroups={})
            exec_worker(spec, stdio=Stdio.of_output(null), status_fd=null)
        os.waitpid(pid, 0)
        while self._has_descendants():
            self._kill()

    def _drain(self) -> None:
        """Read the rest of the pipes."""
        while self._status_fd >= 0:
            self._read_exec_error()
        self._log_pipe.finish()

    def _exit_record(self) -> ExitRecord:
        assert self._main is not None
        exit_record = ExitRecord(
            code=self._main.code,
            is_stopped=self._is_stopped,
            is_killed=self._is_killed,
            n_left_behind=self._n_left_behind,
            n_dropped_bytes=self._log_pipe.log.n_dropped_bytes,
            started_s=self._started_s,
            ended_s=time.time(),
            cpu_s=self._main.cpu_s,
            max_rss_bytes=self._main.max_rss_bytes,
        )
        if self._exec_error:
            return exit_reason.never_ran(exit_record, self._exec_error)
        return exit_reason.with_reason(
            exit_record,
            self._spec,
            log=self._log_pipe.log,
            is_signalled=self._main.is_signalled,
            is_out_of_memory=cgroups.ran_out_of_memory(self._spec.cgroups),
        )

    def _finish(self, exit_record: ExitRecord) -> ExitRecord:
        """Write the exit record and close all files. Without a connected daemon, fsync the record;
        a connected daemon stores the exit durably itself, and fsync is the slowest step (ADR
        0004)."""
        cgroups.remove(self._spec.cgroups)
        self._exec_server.close()
        self._log_pipe.close()
        self._second_record.close()
        self._exit_file.publish(exit_record._asdict(), is_durable=not self._is_watched())
        self._exit_file.close()
        return exit_record

    def _is_watched(self) -> bool:
        poll = select.poll()
        poll.register(self._daemon_fd, 0)
        return not poll.poll(0)
