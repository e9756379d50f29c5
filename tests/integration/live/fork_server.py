"""Starts workers quickly: a process with torch loaded that forks a worker for each line it reads.

python nursery.py    # reads {"number": 1, "argv": [...], "env": {...}, "log": "..."} lines,
                     # writes {"number": 1, "pid": 12} and, at its end, {"number": 1, "code": 0}
"""

import atexit
import json
import os
import runpy
import select
import signal
import sys
import traceback
from typing import NoReturn

import torch
import torch._dynamo

import rota_trainer.elastic.setup  # noqa: F401


def main() -> None:
    torch.set_num_threads(1)
    numbers: dict[int, int] = {}
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asks = sys.stdin.fileno()
    write_message(is_ready=1)
    buffered = b""
    while True:
        ready, _, _ = select.select([asks, wakes], [], [])
        if wakes in ready:
            os.read(wakes, 4096)
            report_exits(numbers)
        if asks in ready:
            read = os.read(asks, 1 << 16)
            if not read:
                # Skip the clean-up of the interpreter, which takes seconds with torch.
                os._exit(0)
            *lines, buffered = (buffered + read).split(b"\n")
            for line in lines:
                start(json.loads(line), numbers)


def start(order: dict, numbers: dict[int, int]) -> None:
    process = os.fork()
    if process == 0:
        run_worker(order)
    numbers[process] = order["number"]
    write_message(number=order["number"], pid=process)


def run_worker(order: dict) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["env"])
    sys.argv = order["argv"]
    code = 1
    try:
        runpy.run_path(order["argv"][0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever ends it, it ends here and not in the parent
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def report_exits(numbers: dict[int, int]) -> None:
    while numbers:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        write_message(number=numbers.pop(process), code=os.waitstatus_to_exitcode(status))


def write_message(**words: int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    main()
