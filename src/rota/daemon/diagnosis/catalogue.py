"""The table of known failures: each row has a name, a message, a hint and patterns for the log.

The first row whose pattern is in the log names the failure, so causes come before their effects:
a defective GPU before the CUDA errors that it causes, a worker that is out of memory before the
broken connections of its peers. The order is:

1. messages with exactly one possible cause;
2. hardware, and failures while workers connect for the first time;
3. memory, files, modules;
4. the environment of a worker: data loaders, containers, MPI;
5. effects of another worker's failure: NCCL, general CUDA errors, connections;
6. guesses: a hang.

The names are those of the lab's earlier tools, so that scripts which search for them still work.
`scripts/generate` writes the table in `docs/reference/failures.md` from this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.daemon.diagnosis.matchers import (
    ContainsAny,
    ContainsOften,
    ContainsSoonAfter,
    LogMatcher,
    RepeatsValue,
)


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One row. `message` is shown in the job's reason, `hint` says what to do. A failure that
    `is_retriable` is not caused by the program, and the job is retried."""

    name: str
    message: str
    hint: str
    matchers: tuple[LogMatcher, ...]
    is_retriable: bool = False


def _contains(*texts: str) -> tuple[LogMatcher, ...]:
    return (ContainsAny(texts),)


_OUT_OF_GPU_MEMORY = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "HIP out of memory",
    "OutOfMemoryError: CUDA",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "RESOURCE_EXHAUSTED: Out of memory",
    "OOM when allocating tensor",
)

FAILURES: tuple[KnownFailure, ...] = (
    # 1. Messages with exactly one possible cause.
    KnownFailure(
        "CodeNotAvail",
        "the archive with the code could not be opened",
        "check that the code was uploaded; `--ship DIR` sends it with the job",
        _contains("unzip:  cannot find or open"),
    ),
    KnownFailure(
        "mask compile",
        "a compiled extension of the code is missing or out of date",
        "compile it again with the Python and torch versions of the job",
        _contains("AttributeError: module 'maskrcnn_benchmark._C'", "cannot import name '_C' from"),
    ),
    KnownFailure(
        "RegNaN",
        "the regression loss became NaN",
        "use a lower learning rate, or check the boxes in the data",
        _contains("regression_loss is NaN", "regression_loss is nan"),
    ),
    KnownFailure(
        "NaN",
        "a number became NaN",
        "use a lower learning rate, gradient clipping, or bfloat16 instead of float16",
        _contains(
            "NaN encountered!",
            "Loss is nan, stopping training",
            "Loss became infinite or NaN",
            "returned nan values in its",
            "cannot convert float NaN to integer",
        ),
    ),
    KnownFailure(
        "InputSmall",
        "an input is too small for the network",
        "use larger images, or fewer pooling layers and strides",
        _contains("Output size is too small"),
    ),
    KnownFailure(
        "copy_if",
        "a GPU kernel of the Thrust library failed",
        "`CUDA_LAUNCH_BLOCKING=1` shows where; often an index is out of range",
        _contains("copy_if failed to synchronize"),
    ),
    # 2. Hardware, and failures while workers connect for the first time.
    KnownFailure(
        "ECC",
        "the GPU's memory is damaged",
        "if it happens again, ask an administrator to check the GPUs of the node",
        _contains("ECC error", "cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE"),
        is_retriable=True,
    ),
    KnownFailure(
        "IBVModifyQP",
        "InfiniBand could not set up a connection",
        "if it happens again, set `NCCL_IB_GID_INDEX`, `NCCL_IB_HCA` or `NCCL_IB_DISABLE=1`",
        _contains("Call to ibv_modify_qp failed"),
        is_retriable=True,
    ),
    KnownFailure(
        "IBError",
        "the InfiniBand card failed",
        "ask an administrator to check the network card of the node",
        _contains(
            "Got async event : local catastrophic error",
            "Got async fatal event: local catastrophic error",
        ),
    ),
    KnownFailure(
        "init_access",
        "the GPU reported an illegal memory access while workers waited for each other",
        "if it happens again, `CUDA_LAUNCH_BLOCKING=1` shows where",
        (ContainsSoonAfter("barrier(", ("an illegal memory access was encountered",)),),
        is_retriable=True,
    ),
    KnownFailure(
        "init",
        "CUDA could not be initialised in a process",
        "if it happens again, check for CUDA use before a fork; use the start method `spawn`",
        _contains(
            "cuda runtime error (3) : initialization error",
            "CUDA error: initialization error",
            "cudaErrorInitializationError",
        ),
        is_retriable=True,
    ),
    KnownFailure(
        "Init",
        "the GPU or its driver failed while the workers connected for the first time",
        "if it happens again, ask an administrator to check the GPU driver of the node",
        (
            ContainsAny(("CUDA driver initialization failed",)),
            ContainsSoonAfter(
                "default_pg.barrier(",
                (
                    *("NCCL error in", "RuntimeError: Connection reset by peer"),
                    *("CUDA error: misaligned address", "CUDA error: all CUDA-capable devices"),
                    *("CUDA out of memory", "CUDA error: out of memory"),
                ),
            ),
        ),
        is_retriable=True,
    ),
    KnownFailure(
        "illegal_access",
        "the program accessed GPU memory outside of its own",
        "`CUDA_LAUNCH_BLOCKING=1` shows where; often an index is out of range",
        _contains("an illegal memory access was encountered"),
    ),
    # 3. Memory, files, modules.
    KnownFailure(
        "OOM",
        "the GPU ran out of memory",
        "use a smaller batch, or request more memory: `--gpu-memory`, `--gpu-type`",
        _contains(*_OUT_OF_GPU_MEMORY),
    ),
    KnownFailure(
        "NoSpace",
        "a disk is full",
        "delete old files, or write to another disk; `TMPDIR` sets the folder of temporary files",
        _contains("[Errno 28] No space left on device", ": No space left on device"),
        is_retriable=True,
    ),
    KnownFailure(
        "TooMany",
        "too many files are open",
        "close files after reading, use fewer data loaders, or"
        " `set_sharing_strategy('file_system')`",
        _contains("[Errno 24] Too many open files", "received 0 items of ancdata"),
    ),
    KnownFailure(
        "BlobThrottle",
        "the blob store throttled requests",
        "write less often and in larger pieces, or wait",
        _contains("BlockCountExceedsLimit", "ErrorCode:ServerBusy", "ErrorCode: ServerBusy"),
    ),
    KnownFailure(
        "blobIO",
        "the disk below the file system failed to read or write a file",
        "if it happens again, check that the blob store or network disk is mounted",
        _contains("[Errno 5] Input/output error"),
        is_retriable=True,
    ),
    KnownFailure(
        "ModuleErr",
        "a Python module is missing",
        "install it in the job's environment, or use an image that has it: `--image`",
        _contains(
            "ModuleNotFoundError: No module named",
            "ImportError: No module named",
            "python: No module named",
            "python3: No module named",
        ),
    ),
    KnownFailure(
        "FileNotFound",
        "a file does not exist",
        "check the path; it is relative to the working folder: `--workdir`, `--mount`",
        _contains("FileNotFoundError: [Errno 2]", ": can't open file '"),
    ),
    # 4. The environment of a worker.
    KnownFailure(
        "Loader",
        "a data loader process died",
        "often out of memory: use fewer loaders (`num_workers`) or more memory (`--memory`)",
        _contains("RuntimeError: DataLoader worker"),
    ),
    KnownFailure(
        "daemon",
        "docker refused the request",
        "see docker's message in the log; check the name of the image",
        _contains("Error response from daemon"),
    ),
    KnownFailure(
        "rootless",
        "podman cannot start containers of users on this machine",
        "ask an administrator to install `newuidmap` (package uidmap) and to add the user to"
        " /etc/subuid and /etc/subgid",
        _contains(
            'exec: "newuidmap": executable file not found',
            'exec: "newgidmap": executable file not found',
            "no subuid ranges found for user",
            "there might not be enough IDs available in the namespace",
        ),
    ),
    KnownFailure(
        "ORTE_comm",
        "MPI lost a node",
        "if it happens again, ask an administrator to check the network between the nodes",
        _contains(
            "ORTE has lost communication with a remote daemon",
            "PRTE has lost communication with a remote daemon",
        ),
        is_retriable=True,
    ),
    KnownFailure(
        "before",
        "a process crashed under MPI, at an address that is not mapped",
        "if it happens again, see the stack trace below that line in the log",
        _contains("Signal code: Address not mapped"),
        is_retriable=True,
    ),
    KnownFailure(
        "waiting",
        "the other nodes did not start",
        "if it happens again, ask an administrator to check the nodes",
        (ContainsOften("has not done sshd setup wait", 1000),),
        is_retriable=True,
    ),
    # 5. Effects of another worker's failure.
    KnownFailure(
        "NCCLTimeout",
        "NCCL timed out while waiting for another worker",
        "if it happens again, check that all workers make the same calls, or use a longer"
        " `timeout`",
        _contains("Watchdog caught collective operation timeout"),
        is_retriable=True,
    ),
    KnownFailure(
        "NCCLSocket",
        "the network between workers failed under NCCL",
        "if it happens again, `NCCL_DEBUG=INFO` shows details; `NCCL_SOCKET_IFNAME` selects the"
        " network",
        _contains("ncclSystemError: System call"),
        is_retriable=True,
    ),
    KnownFailure(
        "cuda",
        "the GPU reported an error",
        "`CUDA_LAUNCH_BLOCKING=1` shows where",
        _contains("CUDA error", "unhandled cuda error"),
    ),
    KnownFailure(
        "connect",
        "the connection to another worker failed",
        "see the logs of the other workers: `rota logs --worker N`",
        _contains(
            "connect() timed out",
            "RuntimeError: Connection reset by peer",
            "ConnectionResetError: ",
            "ConnectionRefusedError: ",
            "Connection closed by peer",
            "client socket has timed out",
            "client socket has failed to connect",
            "ncclRemoteError: ",
        ),
    ),
    # 6. Guesses.
    KnownFailure(
        "Hang",
        "the workers seem to hang, with all GPUs at 100 %",
        "`py-spy dump` on a worker shows where; check that all workers make the same calls",
        (RepeatsValue("'gpu_util': ", "100", 128),),
    ),
)
