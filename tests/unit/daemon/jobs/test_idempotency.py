"""Repeated submits are recognised, also by fingerprints of older versions."""

import asyncio
import hashlib
from dataclasses import replace

import pytest

from rota.core.lifecycle.reducer import new_job
from rota.core.model.effects import Effects
from rota.core.model.events import JobSubmitted
from rota.core.model.job import JobId, JobSpec
from rota.daemon.jobs.idempotency import (
    IdempotencyKeys,
    IdempotentRequest,
    KeyReusedError,
    for_resubmit,
)
from rota.daemon.jobs.idempotency import for_submit as asked_for
from rota.daemon.launch.programs import SubmittedProgram, pack
from rota.store.interface import Batch
from rota.store.memory import MemoryStore
from rota.store.records import Submission
from rota.wire.codec import dump
from rota.wire.jobs import JobRequest

REQUEST = JobRequest(["true"], gpus="1")
KNOWN = JobId("known")


def made_with(mark: str, asked: IdempotentRequest) -> list[JobId]:
    """What comes of a request with a key under which a job with this mark is kept."""
    store = MemoryStore()
    job = new_job(JobSubmitted(KNOWN, JobSpec("a", "ada")), 0.0, known=None)
    program = pack(SubmittedProgram(REQUEST, fingerprint=mark))
    store.write(
        Batch(
            Effects(0.0, jobs={KNOWN: job}),
            submissions=(Submission(KNOWN, "ada", 1, program, "key"),),
        )
    ).result()

    async def submit() -> list[JobId]:
        return [JobId("new")]

    return asyncio.run(IdempotencyKeys(store).once("ada", "key", asked=asked, submit=submit))


NEW = asked_for([REQUEST]).fingerprint
OLDER = hashlib.sha256(dump([REQUEST]).encode()).hexdigest()
AGAIN = for_resubmit("train")


@pytest.mark.parametrize("mark", [NEW, OLDER, ""], ids=["new", "older", "none"])
def test_a_repeated_submit_returns_the_first_job(mark: str) -> None:
    assert made_with(mark, asked_for([replace(REQUEST)])) == [KNOWN]


@pytest.mark.parametrize("mark", [NEW, OLDER, AGAIN.fingerprint], ids=["new", "older", "again"])
def test_another_request_with_the_same_key_is_rejected(mark: str) -> None:
    for other in (asked_for([replace(REQUEST, hold=True)]), for_resubmit("other")):
        with pytest.raises(KeyReusedError):
            made_with(mark, other)


def test_a_resubmit_is_recognised_by_its_word() -> None:
    assert made_with(AGAIN.fingerprint, for_resubmit("train")) == [KNOWN]


def test_an_explicit_default_value_does_not_change_the_fingerprint() -> None:
    spelled = JobRequest(["true"], gpus="1", mode="fixed", cpus=0, env={}, epochs=None)
    assert asked_for([spelled]).fingerprint == NEW
    assert asked_for([REQUEST, REQUEST]).fingerprint != NEW
