"""A script without rota's library: it saves on SIGTERM and resumes from its file.

rota submit -- python examples/plain_sigterm.py --file /tmp/counted.json
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType


def main() -> None:
    options = parse()
    file = Path(options.file)
    state = json.loads(file.read_text()) if file.exists() else {"epoch": 0, "sum": 0}
    wants_end = False

    def on_term(_number: int, _frame: FrameType | None) -> None:
        nonlocal wants_end
        wants_end = True

    signal.signal(signal.SIGTERM, on_term)
    print(f"begins at epoch {state['epoch']}", flush=True)
    while state["epoch"] < options.epochs:
        time.sleep(options.seconds_per_epoch)
        state = {"epoch": state["epoch"] + 1, "sum": state["sum"] + state["epoch"] ** 2}
        print(f"epoch {state['epoch']}", flush=True)
        if wants_end:
            save(file, state)
            sys.exit(143)
    save(file, state)
    print(f"sum {state['sum']}", flush=True)


def save(file: Path, state: dict[str, int]) -> None:
    new = file.with_suffix(".new")
    with new.open("w") as written:
        json.dump(state, written)
        written.flush()
        os.fsync(written.fileno())
    new.replace(file)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seconds-per-epoch", type=float, default=1.0)
    parser.add_argument("--file", default="plain_sigterm.json", help="where the state is kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
