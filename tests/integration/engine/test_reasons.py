"""From a failing process to the reason in the job's events."""

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.events import WorkersExited
from rota.core.model.job import JobId
from rota.daemon.diagnosis.diagnosis import TAIL_BYTES, diagnose, with_finding
from rota.engines.interface import LogLimits, LogQuery, Program
from tests.integration.engine.box import Box, on_a_box, sh
from tests.support.builders import Lab, cluster, job

SLOW = "sleep 1.1; "
"""Past the time in which an exit is at once."""
CUDA = "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')"
LONG = f"head -c 9000 /dev/zero | tr '\\0' x; {SLOW} exit 3"


async def story_of(box: Box, lab: Lab, program: Program) -> str:
    """The reasons in the job's events after the exit."""
    await box.run("job", program)
    fact = box.facts[-1]
    assert isinstance(fact, WorkersExited)
    tail = await box.output("job", LogQuery(tail_bytes=TAIL_BYTES))
    lab.tell(with_finding(fact, [diagnose(tail.decode(errors="replace"), fact.codes[0])]))
    return lab.reason("job")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (Program(("/no/such/program",)), "127: program '/no/such/program' not found"),
        (sh(f"{SLOW} exit 3"), "3"),
        (sh(f"{SLOW} echo sh: 1: pyton: not found; exit 127"), "127: sh: 1: pyton: not found"),
        (sh(f"setsid sleep 1000 & {SLOW} exit 3"), "3: left 1 process behind, which was ended"),
        (
            sh(LONG, log=LogLimits(file_bytes=4096, files=2)),
            "3: wrote a line of 8.789 KiB, which is longer than a log file",
        ),
        (sh(f"{SLOW} printf 'a\\377\\000b'; kill -9 $$"), "137: ended by SIGKILL"),
    ],
)
@on_a_box
async def test_reason_of_a_failure(box: Box, program: Program, reason: str) -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("job"))
    assert await story_of(box, lab, program) == f"exit code {reason}"
    assert lab.state("job") is JobState.FAILED


@on_a_box
async def test_failure_outside_the_job_is_retried(box: Box) -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("job"))
    program = Program(("python3", "-c", f"import time; time.sleep(1); {CUDA}"))
    told = "exit code 1: the GPU's memory is damaged (ECC); will be retried"
    assert await story_of(box, lab, program) == told
    assert lab.state("job") is JobState.QUEUED


@on_a_box
async def test_killed_after_grace_period_is_in_the_events(box: Box) -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("job", time_limit_s=60.0))
    await box.run_until_output("job", "ready", sh("trap '' TERM; echo ready; sleep 1000; sleep 9"))
    lab.wait(60)
    await box.stop("job", grace_s=0.2)
    await box.end_of("job")
    fact = box.facts[-1]
    assert isinstance(fact, WorkersExited)
    assert fact.job_id == JobId("job")
    lab.tell(fact)
    assert lab.reason("job") == (
        "reached its time limit of 60 s; "
        "worker 0: did not end within its grace period and was killed"
    )
