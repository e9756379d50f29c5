"""A job as an object of a cluster: what it holds once accepted, what its status says, and how a
daemon that knows nothing reads both back. Pure.

Whoever may make such objects may write anything into them, but only the daemon may write their
status. So what was accepted is sealed in an annotation until it stands in the status, too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rota.core.model import Ended, Job, JobId, Running, Stopping
from rota.core.states import State
from rota.errors import StoreError, Trouble
from rota.store.codec import CodecError, decode, encode
from rota.store.records import Submission

Object = dict[str, Any]

ACCEPTED, SEAL = "rota.dev/accepted", "rota.dev/seal"
FINALIZER = "rota.dev/job"
"""Holds an object that was deleted until its job is over."""
JOB, USER = "rota.dev/job", "rota.dev/user"
LONGEST_LABEL = 63


@dataclass(frozen=True, slots=True)
class Kept:
    """A job as the cluster keeps it. `batch` is the first job of the submit that it came with:
    its object was made last, so that without it the submit was never accepted."""

    name: str
    job: Job
    submission: Submission
    accepted: str
    batch: str
    has_status: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """What a status says besides what a daemon has to know."""

    reason: str = ""
    progress: float | None = None
    finish_s: float | None = None
    observed: int = 1
    """The generation of the object whose wishes were looked at."""
    notes: tuple[tuple[str, str, str], ...] = ()
    """Wishes that were not granted: type, reason and words of a condition that is False."""


NOTHING_SHOWN = Shown()


def accepted_text(job: Job, submission: Submission, *, batch: str) -> str:
    return json.dumps(
        {
            "user": submission.user,
            "uid": submission.uid,
            "key": submission.key,
            "program": submission.program,
            "record": encode(job),
            "batch": batch,
        },
        separators=(",", ":"),
    )


def body_of(name: str, job_id: JobId, *, accepted: str, key: bytes) -> Object:
    """The object of a job that came through our own doors."""
    found = json.loads(accepted)
    user, plain = found["user"], label_value(found["user"])
    labels = {"app.kubernetes.io/managed-by": "rota", JOB: job_id, USER: plain}
    # Whose it is decides who may edit and delete it, so that it has to be the very name.
    named = {} if plain == user else {USER: user}
    return {
        "metadata": {
            "name": name,
            "labels": {each: value for each, value in labels.items() if value},
            "annotations": {
                ACCEPTED: accepted,
                SEAL: seal(key, name=name, text=accepted),
                **named,
            },
            "finalizers": [FINALIZER],
        },
        "spec": json.loads(found["program"])["request"],
    }


def seal(key: bytes, *, name: str, text: str) -> str:
    return hmac.new(key, f"{name}\n{text}".encode(), hashlib.sha256).hexdigest()


def label_value(text: str) -> str:
    """What of a text may stand in a label."""
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in text)
    return kept[:LONGEST_LABEL].strip("-")


def status_of(job: Job, shown: Shown = NOTHING_SHOWN, *, accepted: str) -> Object:
    own = job.phase.reason if isinstance(job.phase, Ended | Stopping) else ""
    finish_s = job.phase.at_s if isinstance(job.phase, Ended) else shown.finish_s
    status = {
        "id": job.id,
        "state": job.state.value,
        "workers": len(job.members),
        "reason": own or shown.reason,
        "progress": None if shown.progress is None else round(shown.progress, 3),
        "expectedFinish": None if finish_s is None else moment(finish_s),
        "selector": f"{JOB}={job.id},{USER}={job.spec.user}",
        "observedGeneration": shown.observed,
        "fence": {"attempt": job.attempt, "generation": job.generation},
        "conditions": [*_conditions(job), *(_note(each, job) for each in shown.notes)],
        "accepted": accepted,
        "record": encode(job),
    }
    return {name: value for name, value in status.items() if value is not None}


def moment(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def part(found: Object, name: str) -> Object:
    """What an object has there, if anything."""
    return found.get(name) or {}


def kept_of(found: Object, *, key: bytes) -> Kept | None:
    """The job that an object stands for; None if it was never accepted. A seal counts until
    anything else is said of the object."""
    meta, status = part(found, "metadata"), part(found, "status")
    accepted = status.get("accepted") or ("" if status.get("state") else _sealed(meta, key=key))
    if not accepted:
        return None
    try:
        read = json.loads(accepted)
        job = decode(Job, status.get("record") or read["record"])
        submission = Submission(job.id, read["user"], read["uid"], read["program"], read["key"])
        batch = read["batch"]
    except (CodecError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            Trouble.NEWER,
            f"what the cluster keeps of TrainingJob {meta['name']} cannot be read: {error}",
            "start the version of rota that wrote it",
        ) from None
    return Kept(meta["name"], job, submission, accepted, batch, bool(status.get("record")))


def is_bare(found: Object) -> bool:
    """Whether nothing but its seal says that it was accepted."""
    return not part(found, "status").get("accepted")


def id_of(found: Object) -> JobId:
    """Of the job that an object stood for, if that is all that can be read of it."""
    meta = part(found, "metadata")
    told = part(found, "status").get("id") or part(meta, "labels").get(JOB) or meta["name"]
    return JobId(str(told))


def is_sealed(found: Object, *, key: bytes) -> bool:
    """Whether we made it, for a job that came through our own doors."""
    return bool(_sealed(part(found, "metadata"), key=key))


def without_the_unaccepted(kept: list[Kept]) -> tuple[list[Kept], list[Kept]]:
    """Those that count, and those that were left by a submit that nobody was told of."""
    known = {each.job.id for each in kept}
    count = [each for each in kept if each.has_status or JobId(each.batch) in known]
    names = {each.name for each in count}
    return count, [each for each in kept if each.name not in names]


def _sealed(meta: Object, *, key: bytes) -> str:
    annotations: dict[str, str] = part(meta, "annotations")
    text, given = annotations.get(ACCEPTED, ""), annotations.get(SEAL, "")
    is_ours = hmac.compare_digest(seal(key, name=meta["name"], text=text).encode(), given.encode())
    return text if is_ours else ""


def _conditions(job: Job) -> list[Object]:
    """As `kubectl wait --for=condition=Complete` wants them."""
    phase, state = job.phase, job.state.value.capitalize()
    since_s = phase.since_s if isinstance(phase, Running) else job.service.as_of_s
    runs = "True" if isinstance(phase, Running) else "False"
    found = [
        _condition("Accepted", "True", state="Queued", at_s=job.submitted_s),
        _condition("Running", runs, state=state, at_s=since_s),
    ]
    if isinstance(phase, Ended):
        kind = "Complete" if phase.state is State.SUCCEEDED else "Failed"
        over = _condition(kind, "True", state=state, at_s=phase.at_s)
        found.append({**over, "message": phase.reason})
    return found


def _condition(kind: str, status: str, *, state: str, at_s: float) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": state,
        "message": "",
        "lastTransitionTime": moment(at_s),
    }


def _note(note: tuple[str, str, str], job: Job) -> Object:
    kind, reason, words = note
    return {**_condition(kind, "False", state=reason, at_s=job.service.as_of_s), "message": words}
