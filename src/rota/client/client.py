"""All that a daemon can be asked, typed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from rota.client.find import Door, NoDaemonError, door_of, find, parse
from rota.client.following import Absence, follow
from rota.client.http import ANSWER_S, Http
from rota.errors import UnavailableError
from rota.wire.box import NodeView, Status, TokenView
from rota.wire.jobs import (
    FINAL_STATES,
    JobDetails,
    JobRequest,
    JobView,
    LogPiece,
    LogRange,
    StoryEntry,
)
from rota.wire.json import load
from rota.wire.moves import MoveRequest
from rota.wire.training import JobProfile

if TYPE_CHECKING:
    from rota.client.uploads import Uploads

PAGE = 100
TRIES = 5
PAUSE_S = 0.2
ABSENCE_S = 600.0
"""How long a daemon may be away before nobody waits for it any more."""
ALL = LogRange()
FINAL = FINAL_STATES
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, the newest first. `next` asks for those after them, as `before`."""

    jobs: list[JobView]
    next: int | None = None


class Client:
    """A connection to a daemon: that of a URL or of a context, else the one that was chosen, else
    the one on this machine."""

    def __init__(
        self,
        url: str | Door = "",
        *,
        token: str | None = None,
        context: str = "",
        answer_s: float = ANSWER_S,
    ) -> None:
        named = url if isinstance(url, Door) else parse(url) if url else None
        self.door: Door = named or (door_of(context) if context else find())
        self._http = Http(self.door, token, answer_s=answer_s)
        self.token = self._http.token

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
        """The id of the new job, once it is on the daemon's disk; of an array, the first id.
        `origin` is where the job was before, for its story."""
        headers = {"Rota-Moved-From": origin} if origin else {}
        return self._once("/jobs", job, key=key, headers=headers)[0]

    def submit_many(self, jobs: Sequence[JobRequest], *, key: str = "") -> list[str]:
        """All or none. A connection that breaks is tried again: with its key, one submit is one
        job however often it arrives."""
        path, body = ("/jobs", jobs[0]) if len(jobs) == 1 else ("/jobs/batch", {"jobs": list(jobs)})
        return self._once(path, body, key=key)

    def _once(
        self, path: str, body: object = None, *, key: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> list[str]:
        """The ids of what was made."""
        headers = {"Idempotency-Key": key or os.urandom(16).hex(), **headers}
        for number in range(TRIES):
            try:
                return self._http.ask("POST", path, body=body, headers=headers)["ids"]
            except NoDaemonError:
                raise
            except UnavailableError:
                if number == TRIES - 1:
                    raise
                time.sleep(PAUSE_S)
        raise AssertionError

    def check(self, jobs: Sequence[JobRequest]) -> list[JobView]:
        """What a submit would queue, without queueing it."""
        answer = self._http.ask("POST", "/jobs/check", body={"jobs": list(jobs)})
        return load(list[JobView], answer)

    def ship(self, folder: Path) -> str:
        """Send a folder's code, as far as the daemon does not have it; the id of its snapshot."""
        # Most commands ship nothing, and have no time to load what it takes.
        from rota.client.shipping import ship  # noqa: PLC0415
        from rota.client.uploads import Uploads  # noqa: PLC0415

        return ship(folder, Uploads(self._http))

    def shipping(self) -> Uploads:
        """For whoever sends code that is not in a folder, or fetches what was shipped."""
        from rota.client.uploads import Uploads  # noqa: PLC0415

        return Uploads(self._http)

    # -- questions ------------------------------------------------------------------------------

    def jobs(
        self,
        *,
        user: str = "",
        states: Iterable[str] = (),
        project: str = "",
        word: str = "",
        before: int | None = None,
        limit: int = PAGE,
    ) -> Page:
        """A page of jobs, the newest first; `user` empty: everybody's."""
        query = {"user": user, "state": list(states), "project": project, "word": word}
        answer = self._http.ask("GET", "/jobs", query={**query, "before": before, "limit": limit})
        return load(Page, answer)

    def show(self, job: str) -> JobDetails:
        """All about a job, by its id, the beginning or end of it, or its name."""
        return load(JobDetails, self._http.ask("GET", f"/jobs/{_quoted(job)}"))

    def again(self, job: str) -> JobRequest:
        """What makes the same job once more, here or elsewhere. For its owner."""
        return load(JobRequest, self._http.ask("GET", f"/jobs/{_quoted(job)}/request"))

    def story(self, job: str) -> list[StoryEntry]:
        """What happened to a job, the first first."""
        return load(list[StoryEntry], self._http.ask("GET", f"/jobs/{_quoted(job)}/story"))

    def profile(self, job: str) -> JobProfile:
        """What a job measured: its times at each size, how its training went."""
        return load(JobProfile, self._http.ask("GET", f"/jobs/{_quoted(job)}/profile"))

    def events(self, job: str = "", *, after: int | None = None) -> Iterator[StoryEntry]:
        """State changes as they happen; those of one job end with it."""
        for event in self._http.events("/events", {"job": job, "after": after}):
            yield load(StoryEntry, event)

    def wait(self, job: str) -> JobView:
        """Returns when the job is over. A daemon that is down meanwhile is only a pause: the job
        runs on without it."""
        found = self.show(job).job
        absence = Absence(most_s=ABSENCE_S, pause_s=PAUSE_S)
        while found.state not in FINAL:
            try:
                for _ in self.events(found.id, after=0):
                    pass
                found = self.show(found.id).job
            except UnavailableError as error:
                absence.bear(error)
        return found

    def log_bytes(self, job: str, wanted: LogRange = ALL) -> Iterator[bytes]:
        """What the job printed, exactly. With `follow`, a daemon that is down meanwhile is only a
        pause."""
        if not wanted.follow:
            yield from self._http.bytes(f"/jobs/{_quoted(job)}/logs", asdict(wanted))
            return
        for piece in self.log_pieces(job, replace(wanted, exact=True)):
            yield piece.text.encode("latin-1")

    def log_pieces(self, job: str, wanted: LogRange = ALL) -> Iterator[LogPiece]:
        """The same, with times and worker numbers."""
        if not wanted.follow:
            yield from self._log_pieces(job, wanted)
            return
        # By its id: what else is called so may change while the daemon is away.
        job_id = self.show(job).job.id
        absence = Absence(most_s=ABSENCE_S, pause_s=PAUSE_S)
        yield from follow(lambda left: self._log_pieces(job_id, left), wanted, absence=absence)

    def _log_pieces(self, job: str, wanted: LogRange) -> Iterator[LogPiece]:
        for event in self._http.events(f"/jobs/{_quoted(job)}/logs", asdict(wanted)):
            yield load(LogPiece, event)

    # -- deeds ----------------------------------------------------------------------------------

    def cancel(self, job: str, *, reason: str = "") -> JobView:
        return self._deed(job, "cancel", reason=reason)

    def hold(self, job: str, *, reason: str = "") -> JobView:
        return self._deed(job, "hold", reason=reason)

    def release(self, job: str, *, reason: str = "") -> JobView:
        return self._deed(job, "release", reason=reason)

    def resize(self, job: str, workers: int | None) -> JobView:
        """So many workers from now on; None: as many as the policy likes."""
        body = {"workers": workers}
        return load(JobView, self._http.ask("POST", f"/jobs/{_quoted(job)}/resize", body=body))

    def resubmit(self, job: str, *, key: str = "") -> str:
        """The id of a new job that is the same again; tried again as a submit is."""
        return self._once(f"/jobs/{_quoted(job)}/resubmit", key=key)[0]

    def move_later(self, plan: MoveRequest) -> list[JobView]:
        """Let the daemon hand jobs over to another if they still wait after a while. Without jobs
        it only says whether it would."""
        return load(list[JobView], self._http.ask("POST", "/jobs/move", body=plan))

    def _deed(self, job: str, deed: str, *, reason: str = "") -> JobView:
        path, query = f"/jobs/{_quoted(job)}/{deed}", {"reason": reason or None}
        return load(JobView, self._http.ask("POST", path, query=query))

    # -- the machine ----------------------------------------------------------------------------

    def status(self) -> Status:
        return load(Status, self._http.ask("GET", "/status"))

    def me(self) -> str:
        """The user that the daemon takes us for."""
        return self._http.ask("GET", "/me")["user"]

    def nodes(self) -> list[NodeView]:
        return load(list[NodeView], self._http.ask("GET", "/nodes"))

    def drain(self, node: str) -> list[NodeView]:
        return load(list[NodeView], self._http.ask("POST", f"/nodes/{_quoted(node)}/drain"))

    def resume(self, node: str) -> list[NodeView]:
        return load(list[NodeView], self._http.ask("POST", f"/nodes/{_quoted(node)}/resume"))

    def lose(self, node: str) -> list[NodeView]:
        return load(list[NodeView], self._http.ask("POST", f"/nodes/{_quoted(node)}/lost"))

    def policy(self) -> str:
        return self._http.ask("GET", "/policy")["policy"]

    def set_policy(self, policy: str) -> str:
        return self._http.ask("PUT", "/policy", body={"policy": policy})["policy"]

    def stop(self, *, stop_jobs: bool = False) -> None:
        """End the daemon; its jobs run on unless they are to stop, too."""
        self._http.ask("POST", "/stop", query={"stop_jobs": stop_jobs})

    # -- tokens ---------------------------------------------------------------------------------

    def tokens(self) -> list[TokenView]:
        return load(list[TokenView], self._http.ask("GET", "/tokens"))

    def create_token(
        self, *, user: str = "", scope: str = "user", days: float | None = None
    ) -> TokenView:
        body = {"user": user, "scope": scope, "days": days}
        return load(TokenView, self._http.ask("POST", "/tokens", body=body))

    def revoke_token(self, token_id: str) -> TokenView:
        return load(TokenView, self._http.ask("POST", f"/tokens/{_quoted(token_id)}/revoke"))


def _quoted(word: str) -> str:
    return quote(word, safe="")
