"""`Client`: one typed method for each request that the daemon answers.

What only some commands need is imported in the methods that need it, so that `rota list` starts
fast.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self

from rota.client.endpoint import Endpoint, NoDaemonError, endpoint_of, find, parse
from rota.client.http import ANSWER_S, HTTP_OK, Http, loaded, path_part, unexpected_response
from rota.client.http_connection import MAX_BODY_BYTES
from rota.errors import UnavailableError
from rota.wire.job_view import FINAL_STATES, JobList, JobView
from rota.wire.streams import SILENCE_S

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rota.client.http import StreamEvent
    from rota.client.log_follow import ReconnectDeadline
    from rota.client.shipping import Uploads
    from rota.wire.daemon import NodeView, SettingView, Status, TokenView
    from rota.wire.history import HistoryPage
    from rota.wire.job_changes import ChangedJobs, JobEdit, JobSelection
    from rota.wire.job_request import JobRequest
    from rota.wire.jobs import JobDetails, LogPiece, LogRange, StoryEntry
    from rota.wire.moves import MoveRequest
    from rota.wire.submit_plan import SubmitPlan
    from rota.wire.training import JobProfile

PAGE = 100
TRIES = 5
PAUSE_S = 0.2
ABSENCE_S = 600.0
"""How long streams tolerate an unreachable daemon."""
FINAL = FINAL_STATES
NO_HEADERS: Mapping[str, str] = {}


class Client:
    """A connection to a daemon. Without `url` and `context`: the chosen daemon, or the daemon of
    this machine (see `endpoint.py`)."""

    def __init__(
        self,
        url: str | Endpoint = "",
        *,
        token: str | None = None,
        context: str = "",
        answer_s: float = ANSWER_S,
        silence_s: float = SILENCE_S,
        takes_context: bool = True,
        answer_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """`answer_s`: timeout of a request. `silence_s`: a stream on which the daemon sends nothing
        for this time is lost, and the client reconnects. `takes_context`: a submitted job takes
        along the folder, umask and variables of this process, as with the command line (see
        `submit_context.py`). `answer_bytes`: the largest response that is read whole."""
        named = url if isinstance(url, Endpoint) else parse(url) if url else None
        self.endpoint: Endpoint = named or (endpoint_of(context) if context else find())
        self._http = Http(
            self.endpoint,
            token,
            answer_s=answer_s,
            silence_s=silence_s,
            answer_bytes=answer_bytes,
        )
        self.token = self._http.token
        self._takes_context = takes_context

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- submits --------------------------------------------------------------------------------

    def submit(self, job: JobRequest, *, key: str = "", origin: str = "") -> str:
        """Submit a job and return its id (of an array: the first id) once the daemon has stored it.
        `origin` is the daemon from which the job was moved, for its event history."""
        headers = {"Rota-Moved-From": origin} if origin else {}
        [job] = [job] if origin else self._complete([job])
        return self._post_once("/jobs", job, key=key, headers=headers)[0]

    def submit_many(self, jobs: Sequence[JobRequest], *, key: str = "") -> list[str]:
        """Submit all jobs or none. A broken connection is retried: the idempotency key makes sure
        that a repeated submit creates no second job."""
        jobs = self._complete(jobs)
        path, body = ("/jobs", jobs[0]) if len(jobs) == 1 else ("/jobs/batch", {"jobs": list(jobs)})
        return self._post_once(path, body, key=key)

    def _complete(self, jobs: Sequence[JobRequest]) -> Sequence[JobRequest]:
        """The requests as the daemon expects them, with what they take along from this process."""
        if not self._takes_context:
            return jobs
        from rota.client.submit_context import inherited_patterns, with_submit_context, with_texts

        inherited = inherited_patterns()
        return [with_submit_context(with_texts(job), inherited=inherited) for job in jobs]

    def _post_once(
        self, path: str, body: object = None, *, key: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> list[str]:
        """Post with an idempotency key, with retries; return the ids of the created jobs."""
        headers = {"Idempotency-Key": key or os.urandom(16).hex(), **headers}
        for number in range(TRIES):
            try:
                answer = self._http.ask("POST", path, body=body, headers=headers)
                return _ids(answer)
            except NoDaemonError:
                raise
            except UnavailableError:
                if number == TRIES - 1:
                    raise
                time.sleep(PAUSE_S)
        raise AssertionError

    def check(self, jobs: Sequence[JobRequest]) -> list[JobView]:
        """Return the jobs that a submit would queue, without queueing them."""
        body = {"jobs": list(self._complete(jobs))}
        answer = self._http.ask("POST", "/jobs/check", body=body)
        return loaded(list[JobView], answer)

    def plan(self, jobs: Sequence[JobRequest]) -> SubmitPlan:
        """Return where and when the jobs of a submit would start, without queueing them."""
        from rota.wire.submit_plan import SubmitPlan

        body = {"jobs": list(self._complete(jobs))}
        return loaded(SubmitPlan, self._http.ask("POST", "/jobs/plan", body=body))

    def ship(self, folder: Path) -> str:
        """Upload the files of a directory that the daemon does not have; return the snapshot id."""
        from rota.client.shipping import Uploads, ship

        return ship(folder, Uploads(self._http))

    def shipping(self) -> Uploads:
        """Return the low-level upload and download interface of snapshots."""
        from rota.client.shipping import Uploads

        return Uploads(self._http)

    def files(self, job: str, path: str) -> Iterator[bytes]:
        """Yield a file or folder of an ended job as a tar archive. A relative path starts at the
        working directory of the job."""
        return self._http.bytes(f"/jobs/{path_part(job)}/files", {"path": path})

    # -- reading --------------------------------------------------------------------------------

    def jobs(
        self,
        *,
        user: str = "",
        states: Iterable[str] = (),
        project: str = "",
        word: str = "",
        before: int | None = None,
        limit: int = PAGE,
        skip: int | None = None,
    ) -> JobList:
        """Return a page of jobs, newest first. Empty `user`: jobs of all users. With `skip`: in the
        order of the queue, without the first jobs (see `JobList`)."""
        query: dict[str, object] = {
            "user": user,
            "state": list(states),
            "project": project,
            "word": word,
        }
        if skip is not None:
            query |= {"order": "queue", "skip": skip}
        answer = self._http.ask("GET", "/jobs", query={**query, "before": before, "limit": limit})
        return loaded(JobList, answer)

    def show(self, job: str) -> JobDetails:
        """Return the details of a job, by its id, the beginning or end of the id, or its name."""
        from rota.wire.jobs import JobDetails

        return loaded(JobDetails, self._http.ask("GET", f"/jobs/{path_part(job)}"))

    def named(self, word: str) -> list[JobView]:
        """Return the job that a word names, or all jobs of the array that it names."""
        return loaded(list[JobView], self._http.ask("GET", f"/jobs/{path_part(word)}/jobs"))

    def again(self, job: str) -> JobRequest:
        """Return the request that submits the same job again. Only for the job's owner."""
        from rota.wire.job_request import JobRequest

        return loaded(JobRequest, self._http.ask("GET", f"/jobs/{path_part(job)}/request"))

    def story(self, job: str) -> list[StoryEntry]:
        """Return the events of a job, oldest first."""
        from rota.wire.jobs import StoryEntry

        return loaded(list[StoryEntry], self._http.ask("GET", f"/jobs/{path_part(job)}/story"))

    def history(self, *, since_s: float = 0.0, before: int | None = None) -> HistoryPage:
        """Return a page of the jobs that have run and were submitted after `since_s`, newest first:
        own jobs, for administrators the jobs of all users."""
        from rota.wire.history import HistoryPage

        query = {"since_s": since_s, "before": before}
        return loaded(HistoryPage, self._http.ask("GET", "/history", query=query))

    def profile(self, job: str) -> JobProfile:
        """Return the measurements of a job: epoch times per size, and training steps."""
        from rota.wire.training import JobProfile

        return loaded(JobProfile, self._http.ask("GET", f"/jobs/{path_part(job)}/profile"))

    def events(self, job: str = "", *, after: int | None = None) -> Iterator[StoryEntry]:
        """Yield state changes as they happen, each once. With `job`: until this job has ended. If
        the connection is lost or the daemon is down for a while, reconnect."""
        # Use the id: another job may get the same name while the daemon is down.
        job_id = self.show(job).job.id if job else ""
        return self._events(job_id, after=after, deadline=_new_deadline())

    def _events(
        self, job_id: str, *, after: int | None, deadline: ReconnectDeadline
    ) -> Iterator[StoryEntry]:
        from rota.client.log_follow import follow_events
        from rota.wire.jobs import StoryEntry

        def read(position: int | None) -> Iterator[StreamEvent]:
            return self._http.events("/events", {"job": job_id, "after": position})

        for event in follow_events(read, after=after, deadline=deadline):
            yield loaded(StoryEntry, event.data)

    def wait(self, job: str) -> JobView:
        """Wait until the job has ended. If the connection is lost or the daemon is down for a
        while, reconnect: the job keeps running without them."""
        found = self.show(job).job
        deadline = _new_deadline()
        while found.state not in FINAL:
            try:
                for _ in self._events(found.id, after=None, deadline=deadline):
                    pass
                found = self.show(found.id).job
            except UnavailableError as error:
                deadline.wait_or_raise(error)
        return found

    def log_bytes(self, job: str, wanted: LogRange | None = None) -> Iterator[bytes]:
        """Yield the output of the job, byte for byte. With `follow`, reconnect if the daemon is
        down for a while."""
        from rota.wire.jobs import LogRange

        wanted = wanted or LogRange()
        if not wanted.follow:
            yield from self._http.bytes(f"/jobs/{path_part(job)}/logs", asdict(wanted))
            return
        for piece in self.log_pieces(job, replace(wanted, exact=True)):
            yield piece.text.encode("latin-1")

    def log_pieces(self, job: str, wanted: LogRange | None = None) -> Iterator[LogPiece]:
        """Yield the output of the job as pieces with time and worker number."""
        from rota.client.log_follow import follow
        from rota.wire.jobs import LogRange

        wanted = wanted or LogRange()
        if not wanted.follow:
            yield from self._log_pieces(job, wanted)
            return
        # Use the id: another job may get the same name while the daemon is down.
        job_id = self.show(job).job.id
        yield from follow(
            lambda rest: self._log_pieces(job_id, rest), wanted, deadline=_new_deadline()
        )

    def _log_pieces(self, job: str, wanted: LogRange) -> Iterator[LogPiece]:
        from rota.wire.jobs import LogPiece

        for event in self._http.events(f"/jobs/{path_part(job)}/logs", asdict(wanted)):
            yield loaded(LogPiece, event.data)

    # -- changing jobs --------------------------------------------------------------------------

    def cancel(self, job: str, *, reason: str = "") -> JobView:
        return self._act(job, "cancel", reason=reason)

    def hold(self, job: str, *, reason: str = "") -> JobView:
        return self._act(job, "hold", reason=reason)

    def release(self, job: str, *, reason: str = "") -> JobView:
        return self._act(job, "release", reason=reason)

    def resize(self, job: str, gpus: int | None) -> JobView:
        """Fix the number of GPUs. None: let the policy choose the number."""
        body = {"gpus": gpus}
        return loaded(JobView, self._http.ask("POST", f"/jobs/{path_part(job)}/resize", body=body))

    def edit(self, job: str, edit: JobEdit) -> list[JobView]:
        """Change fields of a job, or of all jobs of an array that have not ended."""
        return loaded(list[JobView], self._http.ask("PATCH", f"/jobs/{path_part(job)}", body=edit))

    def change_jobs(self, action: str, selection: JobSelection) -> ChangedJobs:
        """Cancel, hold or release (`action`) all selected jobs in one event."""
        from rota.wire.job_changes import ChangedJobs

        return loaded(ChangedJobs, self._http.ask("POST", f"/jobs/{action}", body=selection))

    def resubmit(self, job: str, *, key: str = "") -> str:
        """Submit the same job again and return the new id (of an array: the first id); retried
        like `submit`."""
        return self.resubmit_all(job, key=key)[0]

    def resubmit_all(self, job: str, *, key: str = "") -> list[str]:
        """As `resubmit`; return the ids of all jobs of an array."""
        return self._post_once(f"/jobs/{path_part(job)}/resubmit", key=key)

    def move_later(self, plan: MoveRequest) -> list[JobView]:
        """Ask the daemon to move jobs to another daemon if they are still queued after a while.
        Without jobs, only check that the daemon accepts the request."""
        return loaded(list[JobView], self._http.ask("POST", "/jobs/move", body=plan))

    def _act(self, job: str, action: str, *, reason: str = "") -> JobView:
        path, query = f"/jobs/{path_part(job)}/{action}", {"reason": reason or None}
        return loaded(JobView, self._http.ask("POST", path, query=query))

    # -- daemon and nodes -----------------------------------------------------------------------

    def status(self) -> Status:
        from rota.wire.daemon import Status

        return loaded(Status, self._http.ask("GET", "/status"))

    def settings(self) -> list[SettingView]:
        """Return the settings that the daemon uses."""
        from rota.wire.daemon import SettingView

        return loaded(list[SettingView], self._http.ask("GET", "/settings"))

    def me(self) -> str:
        """Return the name under which the daemon knows this user."""
        return loaded(str, self._http.ask("GET", "/me"), field="user")

    def nodes(self) -> list[NodeView]:
        return _nodes(self._http.ask("GET", "/nodes"))

    def drain(self, node: str) -> list[NodeView]:
        return _nodes(self._http.ask("POST", f"/nodes/{path_part(node)}/drain"))

    def resume(self, node: str) -> list[NodeView]:
        return _nodes(self._http.ask("POST", f"/nodes/{path_part(node)}/resume"))

    def lose(self, node: str) -> list[NodeView]:
        return _nodes(self._http.ask("POST", f"/nodes/{path_part(node)}/lost"))

    def policy(self) -> str:
        return loaded(str, self._http.ask("GET", "/policy"), field="policy")

    def set_policy(self, policy: str) -> str:
        answer = self._http.ask("PUT", "/policy", body={"policy": policy})
        return loaded(str, answer, field="policy")

    def stop(self, *, stop_jobs: bool = False) -> None:
        """Stop the daemon. Jobs keep running unless `stop_jobs` is set."""
        self._http.ask("POST", "/stop", query={"stop_jobs": stop_jobs})

    # -- tokens ---------------------------------------------------------------------------------

    def tokens(self) -> list[TokenView]:
        from rota.wire.daemon import TokenView

        return loaded(list[TokenView], self._http.ask("GET", "/tokens"))

    def create_token(
        self, *, user: str = "", scope: str = "user", days: float | None = None
    ) -> TokenView:
        body = {"user": user, "scope": scope, "days": days}
        return _token(self._http.ask("POST", "/tokens", body=body))

    def revoke_token(self, token_id: str) -> TokenView:
        return _token(self._http.ask("POST", f"/tokens/{path_part(token_id)}/revoke"))


def _ids(answer: Any) -> list[str]:
    """The ids of created jobs, at least one."""
    ids = loaded(list[str], answer, field="ids")
    if not ids:
        raise unexpected_response(HTTP_OK)
    return ids


def _nodes(answer: Any) -> list[NodeView]:
    from rota.wire.daemon import NodeView

    return loaded(list[NodeView], answer)


def _token(answer: Any) -> TokenView:
    from rota.wire.daemon import TokenView

    return loaded(TokenView, answer)


def _new_deadline() -> ReconnectDeadline:
    from rota.client.log_follow import ReconnectDeadline

    return ReconnectDeadline(most_s=ABSENCE_S, pause_s=PAUSE_S)
