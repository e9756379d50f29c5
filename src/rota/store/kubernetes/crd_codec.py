"""Encodes a job as a TrainingJob object and its status, and decodes it again. Pure.

A new leader with an empty disk rebuilds all jobs from these objects alone.

Users may create TrainingJobs with any content, but only the daemon may write their status. So the
accepted content is first stored in an annotation with a seal (an HMAC signature with the key of the
daemon), and the seal counts until the status repeats the content.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Ended, Job, JobId, Running, Stopping
from rota.errors import StoreError, StoreErrorKind
from rota.store.codec import CodecError, decode, encode
from rota.store.records import Submission

Object = dict[str, Any]

ACCEPTED, SEAL = "rota.dev/accepted", "rota.dev/seal"
FINALIZER = "rota.dev/job"
"""Delays the deletion of an object until its job has ended."""
JOB, USER = "rota.dev/job", "rota.dev/user"
MAX_LABEL_CHARS = 63


@dataclass(frozen=True, slots=True)
class StoredTrainingJob:
    """A job as a TrainingJob object stores it.

    `batch` is the first job of the same submit. Its object is created last: if the object is
    missing, the submit was never accepted.
    """

    name: str
    job: Job
    submission: Submission
    accepted: str
    batch: str
    has_status: bool


@dataclass(frozen=True, slots=True)
class StatusDetails:
    """Fields of a status that inform users. No daemon depends on them."""

    reason: str = ""
    progress: float | None = None
    finish_s: float | None = None
    observed: int = 1
    """The `observedGeneration`: the newest generation of the spec that the daemon has handled."""
    notes: tuple[tuple[str, str, str], ...] = ()
    """Rejected changes of the spec: type, reason and message of a condition that is False."""


NO_STATUS_DETAILS = StatusDetails()


def accepted_text(job: Job, submission: Submission, *, batch: str) -> str:
    return json.dumps(
        {
            "user": submission.user,
            "uid": submission.uid,
            "key": submission.key,
            "program": _whole_program(submission),
            "record": encode(job),
            "batch": batch,
        },
        separators=(",", ":"),
    )


def _whole_program(submission: Submission) -> str:
    """Each object has its whole program: users may delete the others."""
    if not submission.common:
        return submission.program
    own = json.loads(submission.program)
    whole = {**own, "request": json.loads(submission.common)}
    return json.dumps(whole, separators=(",", ":"))


def body_of(name: str, job_id: JobId, *, accepted: str, key: bytes) -> Object:
    """Return the object for a job that was submitted through the API of rota."""
    found = json.loads(accepted)
    user, user_label = found["user"], label_value(found["user"])
    labels = {"app.kubernetes.io/managed-by": "rota", JOB: job_id, USER: user_label}
    # Admission rules compare the owner with the exact user name, which a label cannot always hold.
    owner = {} if user_label == user else {USER: user}
    return {
        "metadata": {
            "name": name,
            "labels": {each: value for each, value in labels.items() if value},
            "annotations": {
                ACCEPTED: accepted,
                SEAL: seal(key, name=name, text=accepted),
                **owner,
            },
            "finalizers": [FINALIZER],
        },
        "spec": json.loads(found["program"])["request"],
    }


def seal(key: bytes, *, name: str, text: str) -> str:
    return hmac.new(key, f"{name}\n{text}".encode(), hashlib.sha256).hexdigest()


def label_value(text: str) -> str:
    """Return the text as a valid label value: other characters become `-`."""
    valid = "".join(each if each.isascii() and each.isalnum() else "-" for each in text)
    return valid[:MAX_LABEL_CHARS].strip("-")


def status_of(job: Job, details: StatusDetails = NO_STATUS_DETAILS, *, accepted: str) -> Object:
    reason = job.phase.reason if isinstance(job.phase, Ended | Stopping) else ""
    finish_s = job.phase.at_s if isinstance(job.phase, Ended) else details.finish_s
    status = {
        "id": job.id,
        "state": job.state.value,
        "size": job.spec.gpus_of(job.spec.units_in(job.members)),
        "reason": reason or details.reason,
        "progress": None if details.progress is None else round(details.progress, 3),
        "expectedFinish": None if finish_s is None else rfc3339(finish_s),
        "selector": f"{JOB}={job.id},{USER}={job.spec.user}",
        "observedGeneration": details.observed,
        "fence": {"attempt": job.attempt, "generation": job.generation},
        "conditions": [*_conditions(job), *(_note(each, job) for each in details.notes)],
        "accepted": accepted,
        "record": encode(job),
    }
    return {name: value for name, value in status.items() if value is not None}


def rfc3339(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def part(found: Object, name: str) -> Object:
    """Return a nested object, or an empty one if it is missing."""
    return found.get(name) or {}


def read_training_job(found: Object, *, key: bytes) -> StoredTrainingJob | None:
    """Return the job of an object, or None if rota never accepted it.

    A seal counts only while the object has no status. Raise `StoreError` if the content is
    unreadable, for example because a newer rota wrote it.
    """
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
            StoreErrorKind.NEWER,
            f"TrainingJob {meta['name']} cannot be read: {error}",
            "run the version of rota that wrote it",
        ) from None
    return StoredTrainingJob(
        meta["name"], job, submission, accepted, batch, bool(status.get("record"))
    )


def external_pod_of(stored: StoredTrainingJob) -> str:
    """The external pod that the job stands for, as NAME/UID; empty for other jobs."""
    return str(json.loads(stored.submission.program).get("pod") or "")


def has_only_seal(found: Object) -> bool:
    """Whether only the seal, and not the status, proves that rota accepted the job."""
    return not part(found, "status").get("accepted")


def id_of(found: Object) -> JobId:
    """Return the job id of an object whose other content may be unreadable."""
    meta = part(found, "metadata")
    job_id = part(found, "status").get("id") or part(meta, "labels").get(JOB) or meta["name"]
    return JobId(str(job_id))


def is_sealed(found: Object, *, key: bytes) -> bool:
    """Whether rota created the object, for a job that was submitted through the API of rota."""
    return bool(_sealed(part(found, "metadata"), key=key))


def split_unaccepted(
    stored: list[StoredTrainingJob],
) -> tuple[list[StoredTrainingJob], list[StoredTrainingJob]]:
    """Split into accepted jobs, and jobs of an incomplete submit that was never acknowledged."""
    known = {each.job.id for each in stored}
    accepted = [each for each in stored if each.has_status or JobId(each.batch) in known]
    names = {each.name for each in accepted}
    return accepted, [each for each in stored if each.name not in names]


def _sealed(meta: Object, *, key: bytes) -> str:
    annotations: dict[str, str] = part(meta, "annotations")
    text, given = annotations.get(ACCEPTED, ""), annotations.get(SEAL, "")
    is_ours = hmac.compare_digest(seal(key, name=meta["name"], text=text).encode(), given.encode())
    return text if is_ours else ""


def _conditions(job: Job) -> list[Object]:
    """Return the conditions that `kubectl wait --for=condition=Complete` reads."""
    phase, state = job.phase, job.state.value.capitalize()
    since_s = phase.since_s if isinstance(phase, Running) else job.service.as_of_s
    is_running = "True" if isinstance(phase, Running) else "False"
    found = [
        _condition("Accepted", "True", state="Queued", at_s=job.submitted_s),
        _condition("Running", is_running, state=state, at_s=since_s),
    ]
    if isinstance(phase, Ended):
        kind = "Complete" if phase.state is JobState.SUCCEEDED else "Failed"
        ended = _condition(kind, "True", state=state, at_s=phase.at_s)
        found.append({**ended, "message": phase.reason})
    return found


def _condition(kind: str, status: str, *, state: str, at_s: float) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": state,
        "message": "",
        "lastTransitionTime": rfc3339(at_s),
    }


def _note(note: tuple[str, str, str], job: Job) -> Object:
    kind, reason, message = note
    condition = _condition(kind, "False", state=reason, at_s=job.service.as_of_s)
    return {**condition, "message": message}
