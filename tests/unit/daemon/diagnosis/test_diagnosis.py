"""Findings from the end of a log. The messages are real ones of the libraries."""

import time
from collections.abc import Mapping

import pytest

from rota.core.model.events import WorkersExited
from rota.core.model.job import JobId
from rota.daemon.diagnosis.catalogue import FAILURES
from rota.daemon.diagnosis.diagnosis import TAIL_BYTES, Finding, diagnose, hint_for, with_finding
from rota.engines.exit_reasons import OUT_OF_MEMORY

NCCL = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, "
SAMPLE = "[{'mem_used': 9000, 'gpu_util': 100}, {'mem_used': 9100, 'gpu_util': %d}]\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    go()\n'

MESSAGES = {
    "CodeNotAvail": "unzip:  cannot find or open /data/code.zip, /data/code.zip.zip.",
    "mask compile": "AttributeError: module 'maskrcnn_benchmark._C' has no attribute 'nms'",
    "RegNaN": "ValueError: regression_loss is NaN",
    "NaN": "FloatingPointError: Loss became infinite or NaN at iteration=7!",
    "InputSmall": "RuntimeError: Given input size: (256x1x1). Calculated output size: (256x0x0). "
    "Output size is too small",
    "copy_if": "RuntimeError: copy_if failed to synchronize: cudaErrorIllegalAddress: an illegal "
    "memory access was encountered",
    "ECC": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "IBVModifyQP": "node-1:7:9 [0] misc/ibvwrap.cc:160 NCCL WARN Call to ibv_modify_qp failed with "
    f"error Invalid argument\n{NCCL}unhandled system error\nncclSystemError: System call (e.g. "
    "socket, malloc) or external library call failed or device error.",
    "IBError": "transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : local catastrophic "
    "error",
    "init_access": "    torch.distributed.barrier()\nRuntimeError: CUDA error: an illegal memory "
    "access was encountered",
    "init": "RuntimeError: cuda runtime error (3) : initialization error at CUDAGeneral.cpp:50",
    "Init": "    work = default_pg.barrier(opts=opts)\nRuntimeError: CUDA out of memory. Tried to "
    "allocate 2.00 MiB",
    "illegal_access": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "OOM": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
    "NoSpace": "OSError: [Errno 28] No space left on device: '/tmp/tmpabc'",
    "TooMany": "OSError: [Errno 24] Too many open files: 'a.jpg'",
    "BlobThrottle": "ErrorCode:BlockCountExceedsLimit",
    "blobIO": "OSError: [Errno 5] Input/output error",
    "ModuleErr": "ModuleNotFoundError: No module named 'apex'",
    "FileNotFound": "python3: can't open file '/x/train.py': [Errno 2] No such file or directory",
    "Loader": "RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error.",
    "daemon": "docker: Error response from daemon: manifest for x:y not found",
    "rootless": 'exec: "newuidmap": executable file not found in $PATH',
    "ORTE_comm": "ORTE has lost communication with a remote daemon.",
    "before": "[node-1:7] Signal: Segmentation fault (11)\n[node-1:7] Signal code: Address not "
    "mapped (1)",
    "waiting": "10.0.0.4 has not done sshd setup wait\n" * 1001,
    "NCCLTimeout": "[rank0]: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(Seq"
    "Num=1, OpType=ALLREDUCE) ran for 600029 milliseconds before timing out.",
    "NCCLSocket": f"{NCCL}unhandled system error\nncclSystemError: System call (e.g. socket, "
    "malloc) or external library call failed or device error.",
    "cuda": "RuntimeError: CUDA error: device-side assert triggered",
    "connect": "RuntimeError: connect() timed out.",
    "Hang": SAMPLE % 100 * 129,
}
RETRIABLE = {
    *("ECC", "init_access", "waiting", "Init", "before", "ORTE_comm", "init", "blobIO"),
    *("NoSpace", "NCCLTimeout", "NCCLSocket", "IBVModifyQP"),
}


def name_of(tail: str, code: int = 1) -> str:
    finding = diagnose(tail, code)
    return finding.name if finding else ""


def test_every_known_failure_has_an_example() -> None:
    assert [each.name for each in FAILURES] == list(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_known_messages_are_named(name: str) -> None:
    finding = diagnose(f"epoch 1\n{MESSAGES[name]}\nbye\n", 1)
    assert finding is not None
    assert (finding.name, finding.is_retriable) == (name, name in RETRIABLE)
    assert finding.message
    assert hint_for(f"exit code 1: {finding}; no retries left") == finding.hint != ""


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "loss: 0.3\n",
        "    ECC Errors\n        Volatile\n",
        "WARNING: apex is not there: No module named 'apex'\n",
        "10.0.0.4 has not done sshd setup wait\n" * 1000,
        SAMPLE % 100 * 128 + SAMPLE % 99 + SAMPLE % 100 * 128,
        SAMPLE % 1000 * 200,
    ],
)
def test_harmless_messages_are_not_named(tail: str) -> None:
    assert diagnose(tail, 1) is None


def test_exit_code_0_has_no_finding() -> None:
    assert diagnose(MESSAGES["OOM"], 0) is None


def test_anchor_more_than_100_lines_above_does_not_match() -> None:
    tail = "barrier()\n" + "step\n" * 100 + MESSAGES["illegal_access"]
    assert name_of(tail) == "illegal_access"
    assert name_of(tail.replace("step\n", "", 1)) == "init_access"


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        ("OOM", "NCCLTimeout"),
        ("OOM", "connect"),
        ("ECC", "cuda"),
        ("NoSpace", "Loader"),
        ("IBVModifyQP", "NCCLSocket"),
        ("copy_if", "illegal_access"),
        ("RegNaN", "NaN"),
    ],
)
def test_cause_is_named_before_its_effects(cause: str, effect: str) -> None:
    assert name_of(f"{MESSAGES[cause]}\n{MESSAGES[effect]}\n") == cause
    assert name_of(f"{MESSAGES[effect]}\n{MESSAGES[cause]}\n") == cause


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (f"{TRACEBACK}ValueError: no\n", "ValueError: no"),
        (f"{TRACEBACK}MemoryError\nbye\n", "MemoryError"),
        (
            f"{TRACEBACK}KeyError: 'a'\n\nDuring handling\n\n{TRACEBACK}a.b.CError: x",
            "a.b.CError: x",
        ),
        (f"{TRACEBACK}ValueError: no\n{TRACEBACK}torch.x.ChildFailedError: \n", "ValueError: no"),
        ("[rank0]: Traceback (most recent call last):\n[rank0]:   File\n[rank0]: E: x", "E: x"),
        ('  File "a.py", line 1\n    x = = 1\nSyntaxError: invalid syntax\n',) * 2,
        (f"{TRACEBACK}\x1b[31mValueError\x1b[0m: \x1b[1mred\x07\u202e\x00", "ValueError: red"),
        (f"{TRACEBACK}ValueError: {'x' * 999}", f"ValueError: {'x' * 105}..."),
    ],
)
def test_unknown_failure_shows_the_last_traceback(tail: str, words: str) -> None:
    expected = words.splitlines()[-1]
    assert diagnose(tail, 1) == Finding(expected)
    assert len(expected) <= 120


def test_program_not_found_by_a_shell() -> None:
    assert diagnose("sh: 1: pyton: not found\n", 127) == Finding("sh: 1: pyton: not found")
    assert diagnose("sh: 1: pyton: not found\n", 1) is None


MISSING = "Error: initializing source docker://localhost/x:y: reading manifest: denied"
FAR = "Error: unable to copy from source docker://example.org/team/image:latest: pinging container "
FAR_CAUSE = 'registry example.org: Get "https://example.org/v2/": connect: connection refused'


@pytest.mark.parametrize(
    ("tail", "code", "words"),
    [
        (f"Trying to pull localhost/x:y...\n{MISSING}\n", 125, MISSING),
        (f"Error: first\n\x1b[31m{MISSING}\x07\x1b[0m\nsee --help\n", 125, MISSING),
        (
            FAR + FAR_CAUSE,
            125,
            f"Error: unable to copy from source docker...{(FAR + FAR_CAUSE)[-77:]}",
        ),
        ("Error: crun: `x` was not found: OCI\n", 127, "Error: crun: `x` was not found: OCI"),
        ("Error: runc: exec: permission denied\n", 126, "Error: runc: exec: permission denied"),
        ("docker: invalid reference format.\n", 125, "docker: invalid reference format."),
        (f"Error: {'x' * 300_000}", 125, None),
        (MISSING, 1, None),
    ],
)
def test_message_of_a_container_tool_is_shown(tail: str, code: int, words: str | None) -> None:
    finding = diagnose(tail, code)
    assert finding == (None if words is None else Finding(words))
    assert len(words or "") <= 120


def test_message_of_a_container_tool_is_added_to_the_failure() -> None:
    finding = diagnose(MESSAGES["daemon"] + "\n\nRun 'docker run --help'\n", 125)
    refused = "docker refused the request"
    assert str(finding) == f"{refused}: {MESSAGES['daemon']} (daemon)"
    assert str(diagnose(MESSAGES["daemon"], 1)) == f"{refused} (daemon)"


def test_only_the_end_of_a_log_is_searched() -> None:
    assert diagnose(MESSAGES["OOM"] + "\n" + "x" * TAIL_BYTES, 1) is None


@pytest.mark.parametrize(
    "piece",
    [
        "\x00", "\n", "\ud800", "barrier(", "barrier(\n", "'gpu_util': ", "'gpu_util': 100",
        "[rank0]: ", "\x1b[", "\x1b[0;0", "Traceback (most recent call last):\n", "a.", "a" * 999,
        f"{TRACEBACK}x" , "an illegal memory access was encountere\n",
    ],
)  # fmt: skip
def test_hostile_logs_are_searched_in_linear_time(piece: str) -> None:
    """4 MiB, of which a part is looked at. The bound is for a busy machine."""
    start = time.process_time()
    diagnose(piece * (4 * 1024**2 // len(piece)), 1)
    assert time.process_time() - start < 2.0


# -- the fact that workers exited ---------------------------------------------------------------


def exited(*codes: int, reason: str = "") -> WorkersExited:
    return WorkersExited(JobId("a"), 1, dict(enumerate(codes)), reason=reason)


def with_logs(event: WorkersExited, tails: Mapping[int, str]) -> WorkersExited:
    """The event with the best finding in these logs."""
    worst = max(event.codes.values())
    found = [diagnose(tail, event.codes.get(each, worst)) for each, tail in tails.items()]
    return with_finding(event, found)


def test_exit_event_gets_a_finding() -> None:
    fact = with_logs(exited(1), {0: MESSAGES["ECC"]})
    assert fact == WorkersExited(
        JobId("a"), 1, {0: 1}, "", "the GPU's memory is damaged (ECC)", is_retriable=True
    )


def test_cause_in_the_log_of_another_worker() -> None:
    fact = with_logs(exited(1), {0: MESSAGES["connect"], 1: MESSAGES["OOM"]})
    assert fact.finding == "the GPU ran out of memory (OOM)"


def test_log_of_a_successful_worker_is_ignored() -> None:
    assert with_logs(exited(0, 1), {0: MESSAGES["OOM"], 1: "no"}).finding == ""


def test_a_memory_limit_has_its_hint() -> None:
    assert "--memory" in hint_for(f"exit code 137: {OUT_OF_MEMORY}: the limit is 1 GiB")
    assert hint_for("exit code 1: something (else)") == ""


def test_refused_checkpoint_comes_before_lost_connections() -> None:
    error = "rota_trainer.torch.components.OtherStateError"
    log = f"[rank0]: {error}: the checkpoint does not fit this training"
    exited = WorkersExited(JobId("a"), 1, {1: 1})
    found = with_logs(exited, {0: log, 1: MESSAGES["connect"]}).finding
    assert found == "the checkpoint does not fit this training"


def test_reason_of_a_worker_that_may_not_join() -> None:
    log = "rota: the daemon is reachable again\nrota: this worker may not join: it has torch 3\n"
    found = diagnose(log, 78)
    assert found is not None
    assert str(found) == "worker may not join: it has torch 3"
    exited = WorkersExited(JobId("a"), 1, {1: 78})
    others = "RuntimeError: CUDA out of memory\n"
    assert with_logs(exited, {0: others, 1: log}).finding == "worker may not join: it has torch 3"
    assert diagnose(log, 1) is None
