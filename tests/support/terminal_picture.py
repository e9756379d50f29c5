"""Draws docs/terminal.svg from a real run; run by `scripts/picture`."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rota import svg
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.tidy.tree import ROOT

PICTURE = ROOT / "docs" / "terminal.svg"
COLUMNS, ROWS = 150, 40
MAX_WORD = 1000
CHARACTER, LINE, MARGIN = 8.0, 18.0, 14.0
BACKGROUND, FOREGROUND = "#16181d", "#d8dee9"
STYLE = f"""
rect {{ fill: {BACKGROUND}; }}
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: {FOREGROUND}; }}
"""
TRAIN = """
import time
import rota_trainer as trainer

run = trainer.start()
run.restore(lambda path: path.read_text())
for epoch in run.epochs(40, save=lambda path: path.write_text("saved")):
    for batch in run.steps(range(10)):
        time.sleep(0.05)
    run.report(loss=2 / (epoch + 1))
"""
SUBMITS = (
    "rota submit --gpus 1..4 --name resnet --mode restart -- python train.py",
    "rota submit --gpus 2 --name bert -- python train.py",
    "rota submit --gpus 3 --name vit -- python train.py",
)


def main() -> None:
    with temporary_daemon(settings={"ROTA_MIN_RUNTIME": "1s"}) as place:
        place.up()
        (place.place / "train.py").write_text(TRAIN)
        text = "".join(record(place))
        place.rota("down", "--stop-jobs")
    PICTURE.write_text(drawing(text))


def record(place: DaemonProcess) -> Iterator[str]:
    """The commands and what a terminal shows."""
    env = {**place.command()["env"], "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    for line in SUBMITS:
        yield from shown(line, place.place, env=env)
    wait_until(lambda: _is_worth_showing(place), "jobs that train")
    yield from shown("rota list", place.place, env=env)
    yield from shown("rota story resnet", place.place, env=env)


def _is_worth_showing(place: DaemonProcess) -> bool:
    """Two jobs train and have made some progress."""
    jobs = place.client.jobs().jobs
    return sum(job.epochs_done > 4 and job.finish_s is not None for job in jobs) >= 2


def shown(line: str, folder: Path, *, env: Mapping[str, str]) -> Iterator[str]:
    yield f"\x1b[1;32m$\x1b[0m {line}\n"
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    with subprocess.Popen(line, shell=True, cwd=folder, env=env, stdout=theirs, stderr=theirs):
        os.close(theirs)
        with os.fdopen(ours, "rb") as terminal:
            yield _all(terminal.fileno()).decode().replace("\r\n", "\n")


def _all(terminal: int) -> bytes:
    """What is written until the command closes its end, which is an error of the terminal."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            piece = b""
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def drawing(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    n_columns = max(Text.from_ansi(line).cell_len for line in lines)
    size = (2 * MARGIN + n_columns * CHARACTER, 2 * MARGIN + len(lines) * LINE)
    board = f'<rect width="{svg.num(size[0])}" height="{svg.num(size[1])}" rx="8"></rect>'
    words = [word for number, line in enumerate(lines) for word in _words(line, number)]
    title = "A terminal with three jobs on four GPUs: two train, and rota says why the third waits"
    return svg.page(board, *words, size=size, title=title, style=STYLE) + "\n"


def _words(line: str, number: int) -> Iterator[str]:
    """Each run of characters at its own column, so that columns align in any font."""
    y = MARGIN + (number + 0.75) * LINE
    column = 0
    for segment in Text.from_ansi(line).render(Console(width=10_000)):
        for match in re.finditer(r"\S+(?: \S+)*", segment.text.rstrip("\n")):
            x, width = MARGIN + (column + match.start()) * CHARACTER, len(match[0]) * CHARACTER
            place = f'x="{svg.num(x)}" y="{svg.num(y)}" textLength="{svg.num(width)}"'
            style = segment.style
            colour = style.color.get_truecolor().hex if style and style.color else ""
            fill = f' style="fill:{colour}"' if colour else ""
            weight = ' font-weight="bold"' if style and style.bold else ""
            faint = ' opacity="0.6"' if style and style.dim else ""
            yield svg.tag("text", place + fill + weight + faint, svg.safe(match[0], MAX_WORD))
        column += len(segment.text)


if __name__ == "__main__":
    main()
