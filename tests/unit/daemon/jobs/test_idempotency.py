"""A submit that is sent again is told from another, in whichever form it was kept."""

import asyncio
import hashlib
from dataclasses import replace

import pytest

from rota.core.effects import Effects
from rota.core.events import JobSubmitted
from rota.core.life import submitted
from rota.core.model import JobId, JobSpec
from rota.daemon.keys import Asked, KeyReusedError, Keys, resubmitted
from rota.daemon.keys import submitted as asked_for
from rota.daemon.programs import Saved, pack
from rota.store.base import Batch
from rota.store.memory import MemoryStore
from rota.store.records import Submission
from rota.wire.jobs import JobRequest
from rota.wire.json import dump

REQUEST = JobRequest(["true"], gpus="1")
KNOWN = JobId("known")


def made_with(mark: str, asked: Asked) -> list[JobId]:
    """What comes of a request with a key under which a job with this mark is kept."""
    store = MemoryStore()
    job = submitted(JobSubmitted(KNOWN, JobSpec("a", "ada")), 0.0, known=None)
    program = pack(Saved(REQUEST, fingerprint=mark))
    store.write(
        Batch(
            Effects(0.0, jobs={KNOWN: job}),
            submissions=(Submission(KNOWN, "ada", 1, program, "key"),),
        )
    ).result()

    async def submit() -> list[JobId]:
        return [JobId("new")]

    return asyncio.run(Keys(store).once("ada", "key", asked=asked, submit=submit))


NEW = asked_for([REQUEST]).mark
OLDER = hashlib.sha256(dump([REQUEST]).encode()).hexdigest()
AGAIN = resubmitted("train")


@pytest.mark.parametrize("mark", [NEW, OLDER, ""], ids=["new", "older", "none"])
def test_the_same_again_is_the_same_job(mark: str) -> None:
    assert made_with(mark, asked_for([replace(REQUEST)])) == [KNOWN]


@pytest.mark.parametrize("mark", [NEW, OLDER, AGAIN.mark], ids=["new", "older", "again"])
def test_something_else_is_refused(mark: str) -> None:
    for other in (asked_for([replace(REQUEST, hold=True)]), resubmitted("other")):
        with pytest.raises(KeyReusedError):
            made_with(mark, other)


def test_a_resubmit_is_known_by_its_word() -> None:
    assert made_with(AGAIN.mark, resubmitted("train")) == [KNOWN]


def test_a_default_that_is_spelled_out_changes_nothing() -> None:
    spelled = JobRequest(["true"], gpus="1", mode="fixed", cpus=0, env={}, epochs=None)
    assert asked_for([spelled]).mark == NEW
    assert asked_for([REQUEST, REQUEST]).mark != NEW
