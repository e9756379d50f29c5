"""The failures that are known by their signs in a log: one table, the most specific first.

The names are those that the lab's earlier tools print. Where one failure makes others happen, the
cause stands above what it causes: a damaged GPU above the errors that CUDA reports because of it,
one worker's lack of memory above the broken connections of its peers. So the first row whose
evidence is in the log names the failure. The order is:

1. messages that only one mistake can cause;
2. the hardware, and what fails while workers meet for the first time;
3. memory, files, modules;
4. what happens around a worker: data loaders, containers, MPI;
5. what a worker sees when others have failed: NCCL, any error of CUDA, connections;
6. what is only likely: a hang.

`docs/reference/failures.md` is made of this table, and a test sees to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.daemon.evidence import AlwaysFull, Evidence, Says, SaysOften, SaysSoonAfter


@dataclass(frozen=True, slots=True)
class Failure:
    """A row: its name, what a person is told, what to do about it, and how it is known. One that
    `is_retriable` is nobody's mistake, and tried again."""

    name: str
    words: str
    hint: str
    evidence: tuple[Evidence, ...]
    is_retriable: bool = False


def _says(*words: str) -> tuple[Evidence, ...]:
    return (Says(words),)


_OUT_OF_GPU_MEMORY = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "HIP out of memory",
    "OutOfMemoryError: CUDA",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "RESOURCE_EXHAUSTED: Out of memory",
    "OOM when allocating tensor",
)

FAILURES: tuple[Failure, ...] = (
    # 1. Messages that only one mistake can cause.
    Failure(
        "CodeNotAvail",
        "the archive with the code could not be opened",
        "check that the code was uploaded; `--ship DIR` sends it with the job",
        _says("unzip:  cannot find or open"),
    ),
    Failure(
        "mask compile",
        "a compiled extension of the code is missing or out of date",
        "compile it again, with the Python and the torch that the job runs with",
        _says("AttributeError: module 'maskrcnn_benchmark._C'", "cannot import name '_C' from"),
    ),
    Failure(
        "RegNaN",
        "the regression loss became NaN",
        "a lower learning rate, or a look at the boxes in the data",
        _says("regression_loss is NaN", "regression_loss is nan"),
    ),
    Failure(
        "NaN",
        "a number became NaN",
        "a lower learning rate, gradient clipping, or bfloat16 in place of float16",
        _says(
            "NaN encountered!",
            "Loss is nan, stopping training",
            "Loss became infinite or NaN",
            "returned nan values in its",
            "cannot convert float NaN to integer",
        ),
    ),
    Failure(
        "InputSmall",
        "an input is too small for the network",
        "larger images, or fewer poolings and strides",
        _says("Output size is too small"),
    ),
    Failure(
        "copy_if",
        "a GPU kernel of the library Thrust failed",
        "`CUDA_LAUNCH_BLOCKING=1` shows where; often an index is out of range",
        _says("copy_if failed to synchronize"),
    ),
    # 2. The hardware, and what fails while workers meet for the first time.
    Failure(
        "ECC",
        "the GPU's memory is damaged",
        "if it comes again, an administrator should look at the node's GPUs",
        _says("ECC error", "cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE"),
        is_retriable=True,
    ),
    Failure(
        "IBVModifyQP",
        "InfiniBand could not set up a connection",
        "if it comes again: `NCCL_IB_GID_INDEX`, `NCCL_IB_HCA`, or `NCCL_IB_DISABLE=1`",
        _says("Call to ibv_modify_qp failed"),
        is_retriable=True,
    ),
    Failure(
        "IBError",
        "the InfiniBand card failed",
        "an administrator should look at the node's network card",
        _says(
            "Got async event : local catastrophic error",
            "Got async fatal event: local catastrophic error",
        ),
    ),
    Failure(
        "init_access",
        "the GPU reported an illegal memory access while workers waited for each other",
        "if it comes again: `CUDA_LAUNCH_BLOCKING=1` shows where",
        (SaysSoonAfter("barrier(", ("an illegal memory access was encountered",)),),
        is_retriable=True,
    ),
    Failure(
        "init",
        "CUDA could not be initialised in a process",
        "if it comes again: CUDA used before a fork? `spawn` is the start method for workers",
        _says(
            "cuda runtime error (3) : initialization error",
            "CUDA error: initialization error",
            "cudaErrorInitializationError",
        ),
        is_retriable=True,
    ),
    Failure(
        "Init",
        "the GPU or its driver failed while the workers met for the first time",
        "if it comes again, an administrator should look at the node's driver",
        (
            Says(("CUDA driver initialization failed",)),
            SaysSoonAfter(
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
    Failure(
        "illegal_access",
        "the program accessed memory of the GPU that is not its own",
        "`CUDA_LAUNCH_BLOCKING=1` shows where; often an index is out of range",
        _says("an illegal memory access was encountered"),
    ),
    # 3. Memory, files, modules.
    Failure(
        "OOM",
        "the GPU ran out of memory",
        "a smaller batch, or more memory: `--gpu-memory`, `--gpu-type`",
        _says(*_OUT_OF_GPU_MEMORY),
    ),
    Failure(
        "NoSpace",
        "a disk is full",
        "remove old files, or write elsewhere; `TMPDIR` says where temporary files go",
        _says("[Errno 28] No space left on device", ": No space left on device"),
        is_retriable=True,
    ),
    Failure(
        "TooMany",
        "too many files are open",
        "close what is read, fewer data loaders, or `set_sharing_strategy('file_system')`",
        _says("[Errno 24] Too many open files", "received 0 items of ancdata"),
    ),
    Failure(
        "BlobThrottle",
        "the blob store refused more requests",
        "write less often and in larger pieces, or wait",
        _says("BlockCountExceedsLimit", "ErrorCode:ServerBusy", "ErrorCode: ServerBusy"),
    ),
    Failure(
        "blobIO",
        "reading or writing a file failed below the file system",
        "if it comes again: is the blob store or the network disk still mounted?",
        _says("[Errno 5] Input/output error"),
        is_retriable=True,
    ),
    Failure(
        "ModuleErr",
        "a Python module is missing",
        "install it in the job's environment, or name an image that has it: `--image`",
        _says(
            "ModuleNotFoundError: No module named",
            "ImportError: No module named",
            "python: No module named",
            "python3: No module named",
        ),
    ),
    Failure(
        "FileNotFound",
        "a file does not exist",
        "check the path; it counts from the working folder: `--workdir`, `--mount`",
        _says("FileNotFoundError: [Errno 2]", ": can't open file '"),
    ),
    # 4. What happens around a worker.
    Failure(
        "Loader",
        "a data loader's process died",
        "often memory: fewer loaders (`num_workers`), or more memory: `--memory`",
        _says("RuntimeError: DataLoader worker"),
    ),
    Failure(
        "daemon",
        "docker refused to do what was asked of it",
        "its own message in the log says why; is the image's name right?",
        _says("Error response from daemon"),
    ),
    Failure(
        "ORTE_comm",
        "MPI lost a node",
        "if it comes again, an administrator should look at the network between the nodes",
        _says(
            "ORTE has lost communication with a remote daemon",
            "PRTE has lost communication with a remote daemon",
        ),
        is_retriable=True,
    ),
    Failure(
        "before",
        "a process crashed under MPI, at an address that is not mapped",
        "if it comes again: the stack below that line in the log says where",
        _says("Signal code: Address not mapped"),
        is_retriable=True,
    ),
    Failure(
        "waiting",
        "the other nodes did not come up",
        "if it comes again, an administrator should look at the nodes",
        (SaysOften("has not done sshd setup wait", 1000),),
        is_retriable=True,
    ),
    # 5. What a worker sees when others have failed.
    Failure(
        "NCCLTimeout",
        "NCCL waited in vain for another worker",
        "if it comes again: does every worker make the same calls? A longer `timeout` may do",
        _says("Watchdog caught collective operation timeout"),
        is_retriable=True,
    ),
    Failure(
        "NCCLSocket",
        "the network between workers failed under NCCL",
        "if it comes again: `NCCL_DEBUG=INFO` says more, `NCCL_SOCKET_IFNAME` chooses the network",
        _says("ncclSystemError: System call"),
        is_retriable=True,
    ),
    Failure(
        "cuda",
        "the GPU reported an error",
        "`CUDA_LAUNCH_BLOCKING=1` shows where",
        _says("CUDA error", "unhandled cuda error"),
    ),
    Failure(
        "connect",
        "the connection to another worker failed",
        "the logs of the other workers say more: `rota logs --worker N`",
        _says(
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
    # 6. What is only likely.
    Failure(
        "Hang",
        "the workers seem to have hung, with all GPUs at 100 %",
        "`py-spy dump` on a worker shows where; does every worker make the same calls?",
        (AlwaysFull("'gpu_util': ", "100", 128),),
    ),
)
