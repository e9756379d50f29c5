"""All workers that this daemon has a hand on: from a wish to a keeper to a fact.

Everything that matters is on disk (`folders.py`) before it is acted upon, so that a daemon that
starts anew over the same folder goes on where the last one stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from rota.core.events import Event, WorkersExited, WorkersFound, WorkersLost, WorkersStarted
from rota.core.model import JobId
from rota.engines.base import Facts
from rota.engines.local import procs
from rota.engines.local.child import CANNOT_RUN
from rota.engines.local.cradle import Cradle
from rota.engines.local.folders import Folders
from rota.engines.local.order import KILLED_CODE, NEVER_STARTED, STOPPED_CODE, Ending, Fence, Order
from rota.engines.local.remains import end_remains
from rota.tasks import Tasks

log = structlog.get_logger()

LOOK_AGAIN_S = 0.02
"""For the few moments between a keeper's birth and its first words."""
TRY_AGAIN_S = 1.0
"""For a machine that has no file, no process or no room on its disk to spare."""


@dataclass(slots=True)
class _Watched:
    pidfd: int
    is_started: bool = False


class Workers:
    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._cradle = Cradle(folders.jobs, self._hear)
        self._watched: dict[Fence, _Watched] = {}
        self._tasks = Tasks()
        self._facts: Facts = _nobody_listens

    def open(self, facts: Facts) -> None:
        self._facts = facts
        self._cradle.start()

    async def close(self) -> None:
        for fence in list(self._watched):
            self._unwatch(fence)
        self._cradle.close()
        await self._tasks.close()

    def watched(self) -> Iterable[Fence]:
        return self._watched

    async def start(self, fence: Fence, order: Order) -> None:
        folders = self._folders
        is_known = fence in self._watched or self._cradle.has_asked(fence.folder)
        if is_known or folders.keeper(fence) or folders.ending(fence):
            self.resume(fence)
        elif self._is_to_end(fence):
            self.stop(fence)
        else:
            folders.prepare(fence, order)
            self._cradle.ask(fence.folder)

    def kill(self, fence: Fence) -> None:
        """This worker alone, at once. The wish is on disk before its keeper is woken."""
        if not self._folders.ending(fence):
            self._folders.wish_kill(fence)
        self.stop(fence)

    def stop(self, fence: Fence) -> None:
        """The wish, the attempt's or one about this worker alone, is on disk already."""
        if ending := self._folders.ending(fence):
            self._report_end(fence, ending)
        elif watched := self._watched.get(fence):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(watched.pidfd, signal.SIGTERM)
        elif identity := self._folders.keeper(fence):
            self._watch(fence, identity)
        else:
            self._stop_unborn(fence)

    def resume(self, fence: Fence, *, is_found: bool = False) -> None:
        """Take up a worker at whatever point of its life it is, and report that point: as found,
        if nobody asked for it."""
        if ending := self._folders.ending(fence):
            self._report_end(fence, ending)
        elif watched := self._watched.get(fence):
            # Its word may have overtaken the nursery's, before it was watched.
            if watched.is_started or self._folders.has_started(fence):
                self._report_started(fence)
        elif identity := self._folders.keeper(fence):
            self._watch(fence, identity)
            self._spawn(fence, lambda: self._await_start(fence, is_found=is_found))
        elif self._is_to_end(fence):
            self.stop(fence)

    def _is_to_end(self, fence: Fence) -> bool:
        return self._folders.is_stopped(fence) or self._folders.is_doomed(fence)

    # -- watching -------------------------------------------------------------------------------

    def _hear(self, words: list[str]) -> None:
        """The nursery or a keeper has something to say."""
        fence = Fence.of_folder(words[1])
        match words:
            case ["forked", _, pid, start_ticks]:
                born = int(pid), int(start_ticks)
                try:
                    self._watch_born(fence, born)
                except OSError:
                    self._spawn(fence, lambda: self._watch_late(fence, born))
            case ["started", _]:
                if watched := self._watched.get(fence):
                    watched.is_started = True
                self._report_started(fence)
            case _:
                reason = f"no keeper: {' '.join(words[2:])}"
                self._spawn(fence, lambda: self._lose(fence, reason=reason))

    def _watch_born(self, fence: Fence, born: tuple[int, int]) -> None:
        if fence not in self._watched:
            self._watch(fence, procs.Identity(*born, procs.boot_id()))

    async def _watch_late(self, fence: Fence, born: tuple[int, int]) -> None:
        self._watch_born(fence, born)
        await self._await_start(fence)

    def _watch(self, fence: Fence, identity: procs.Identity) -> None:
        pidfd = identity.open()
        if pidfd is None:
            self._keeper_ended(fence)
            return
        self._watched[fence] = _Watched(pidfd)
        asyncio.get_running_loop().add_reader(pidfd, self._keeper_ended, fence)
        if self._is_to_end(fence):
            self.stop(fence)

    def _unwatch(self, fence: Fence) -> _Watched | None:
        watched = self._watched.pop(fence, None)
        if watched is not None:
            asyncio.get_running_loop().remove_reader(watched.pidfd)
            os.close(watched.pidfd)
        return watched

    async def _await_start(self, fence: Fence, *, is_found: bool = False) -> None:
        """An adopted keeper cannot tell us that its worker has started, but its file can."""
        while watched := self._watched.get(fence):
            if self._folders.has_started(fence):
                watched.is_started = True
                self._report_started(fence, is_found=is_found)
                return
            await asyncio.sleep(LOOK_AGAIN_S)

    def _keeper_ended(self, fence: Fence) -> None:
        watched = self._unwatch(fence)
        try:
            ending = self._folders.ending(fence)
        except OSError:
            # It is looked for again before anything is called lost.
            ending = None
        if ending is None:
            self._spawn(fence, lambda: self._lose(fence, reason="its keeper died"))
            return
        if ending.started_s and not (watched and watched.is_started):
            self._report_started(fence)
        self._report_end(fence, ending)

    async def _lose(self, fence: Fence, *, reason: str) -> None:
        """No keeper and no word of it: end what is left, and only then say so."""
        while not (lock := self._folders.lock(fence)):
            # The one that ended was a second keeper, which found the first at work.
            if identity := self._folders.keeper(fence):
                self._watch(fence, identity)
                self._spawn(fence, lambda: self._await_start(fence))
                return
            await asyncio.sleep(LOOK_AGAIN_S)
        with lock:
            order, n_ended = self._folders.order(fence), 0
            if order is not None:
                n_ended = await asyncio.to_thread(end_remains, order)
            ending = self._folders.ending(fence) or self._lost(fence, reason)
            ending = self._settle(fence, ending._replace(n_left_behind=n_ended))
        self._report_end(fence, ending)

    def _lost(self, fence: Fence, reason: str) -> Ending:
        """A keeper leaves its record before it starts anything."""
        if self._folders.keeper(fence):
            return Ending(-1, reason, is_lost=True, ended_s=time.time())
        what = f"could not be started: {reason}"
        return Ending(CANNOT_RUN, what, is_retriable=True, ended_s=time.time())

    def _settle(self, fence: Fence, ending: Ending) -> Ending:
        """Written down if the disk has room for it, and reported in any case: a worker of which
        nothing is left must not hold its GPU."""
        try:
            self._folders.write_ending(fence, ending)
        except OSError as error:
            return ending._replace(reason=f"{ending.reason}: {(error.strerror or '').lower()}")
        return ending

    def _stop_unborn(self, fence: Fence) -> None:
        code = KILLED_CODE if self._folders.is_doomed(fence) else STOPPED_CODE
        if not self.end_unborn(fence, Ending(code, NEVER_STARTED, is_stopped=True)):
            self._spawn(fence, lambda: self._stop_again(fence))

    def end_unborn(self, fence: Fence, ending: Ending) -> bool:
        """Make sure that a worker that has not started never will. False if a keeper is just
        being born: it will see the wish to stop, or we see its record."""
        lock = self._folders.lock(fence)
        if lock is None:
            return False
        with lock:
            if self._folders.keeper(fence):
                return False
            self._folders.write_ending(fence, ending._replace(ended_s=time.time()))
        self._report_end(fence, ending)
        return True

    async def _stop_again(self, fence: Fence) -> None:
        await asyncio.sleep(LOOK_AGAIN_S)
        self.stop(fence)

    def _spawn(self, fence: Fence, care: Callable[[], Awaitable[None]]) -> None:
        self._tasks.spawn(_insist(fence, care), worker=fence.folder)

    # -- facts ----------------------------------------------------------------------------------

    def _report_started(self, fence: Fence, *, is_found: bool = False) -> None:
        kind = WorkersFound if is_found else WorkersStarted
        self._facts(kind(JobId(fence.job_id), fence.attempt, frozenset({fence.worker})))

    def _report_end(self, fence: Fence, ending: Ending) -> None:
        job_id, attempt, worker = JobId(fence.job_id), fence.attempt, fence.worker
        if ending.is_lost:
            self._facts(WorkersLost(job_id, attempt, frozenset({worker}), ending.reason))
        else:
            codes, is_retriable = {worker: ending.code}, ending.is_retriable
            exited = WorkersExited(job_id, attempt, codes, ending.reason, is_retriable=is_retriable)
            self._facts(exited)
        self._folders.close(fence)


async def _insist(fence: Fence, care: Callable[[], Awaitable[None]]) -> None:
    """Until it works: a worker that nobody cares for would hold its GPU for ever."""
    trouble = ""
    while True:
        try:
            return await care()
        except OSError as error:
            if str(error) != trouble:
                log.warning("worker waits for the machine", worker=fence.folder, error=str(error))
            trouble = str(error)
        await asyncio.sleep(TRY_AGAIN_S)


def _nobody_listens(_: Event) -> None:
    pass
