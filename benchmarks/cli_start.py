"""How long commands take to start, compared with `python -c pass`, and what each import costs.

    python -m benchmarks.cli_start --runs 40

Starts an idle daemon with virtual GPUs in a temporary folder, runs each command many times in turns
with `python -c pass`, and prints the medians. CPU time is user and system time of the process: on a
busy machine it varies less than the elapsed time.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.markdown import RESULTS, machine, page, publish, table

ROTA = "from rota.cli.main import main; main()"
BASELINE = ("-c", "pass")
COMMANDS = {
    "rota --help": ("--help",),
    "rota list": ("list",),
    "rota submit": ("submit", "--hold", "--", "true"),
}
LIBRARIES = (
    *("argparse", "click", "dataclasses", "http.client", "json", "pathlib", "socket", "ssl"),
    *("typing", "urllib.parse"),
)
IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s*(\S+)")
IMPORT_RUNS = 5
MOST_IMPORTS = 12
AIM = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a command, in milliseconds."""

    cpu_ms: float
    wall_ms: float


def run(words: Sequence[str], environment: Mapping[str, str]) -> Sample:
    """Run Python with these arguments; its output is thrown away."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    start = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable, [sys.executable, *words], dict(environment), file_actions=quiet
    )
    _, status, used = os.wait4(pid, 0)
    elapsed = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(words)} failed with status {status}")
    return Sample((used.ru_utime + used.ru_stime) * 1000, elapsed * 1000)


@contextmanager
def daemon(home: Path) -> Iterator[dict[str, str]]:
    """An idle daemon; yields the environment of its clients."""
    environment = {**os.environ, "ROTA_HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    for name in ("ROTA_URL", "ROTA_CONTEXT", "ROTA_TOKEN", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    # As in an installation, where modules are compiled once.
    environment["PYTHONPYCACHEPREFIX"] = str(home / "bytecode")
    rota = [sys.executable, "-c", ROTA]
    subprocess.run(
        [*rota, "up", "--detach", "--virtual-gpus", "4x16GiB"], env=environment, check=True
    )
    try:
        yield environment
    finally:
        subprocess.run([*rota, "down", "--stop-jobs"], env=environment, check=True)


def measure(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], *, runs: int
) -> dict[str, list[Sample]]:
    """Samples of each command, taken in turns, so that a busy moment hits all of them."""
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, words in commands.items():
            sample = run(words, environment)
            if number:  # The first run compiles modules and fills caches.
                samples[name].append(sample)
    return samples


def ratios(samples: Mapping[str, list[Sample]], *, baseline: str) -> str:
    """A table of medians with quartiles, and their ratios to the baseline."""
    base_cpu = statistics.median(each.cpu_ms for each in samples[baseline])
    base_wall = statistics.median(each.wall_ms for each in samples[baseline])
    rows: list[list[str]] = []
    for name, each in samples.items():
        cpu = statistics.quantiles([sample.cpu_ms for sample in each])
        wall = statistics.quantiles([sample.wall_ms for sample in each])
        rows.append(
            [
                f"`{name}`",
                f"{cpu[1]:.0f} ({cpu[0]:.0f} to {cpu[2]:.0f})",
                f"{cpu[1] / base_cpu:.1f}",
                f"{wall[1]:.0f} ({wall[0]:.0f} to {wall[2]:.0f})",
                f"{wall[1] / base_wall:.1f}",
            ]
        )
    return table(["command", "CPU, ms", "ratio", "elapsed, ms", "ratio"], rows)


def import_costs(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds of each import by itself, without the imports in it: the least of some runs."""
    least: dict[str, float] = {}
    for _ in range(IMPORT_RUNS):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *words],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=True,
        )
        for own_us, _, module in IMPORT_LINE.findall(done.stderr):
            least[module] = min(least.get(module, float("inf")), int(own_us) / 1000)
    return least


def imports(name: str, words: Sequence[str], *, environment: Mapping[str, str]) -> str:
    """A table of the dearest imports of a command."""
    without = import_costs(BASELINE, environment)
    found = import_costs(words, environment)
    costs = {module: own for module, own in found.items() if module not in without}
    dearest = sorted(costs.items(), key=lambda each: -each[1])[:MOST_IMPORTS]
    rows = [[f"`{module}`", f"{own:.1f}"] for module, own in dearest]
    head = f"`{name}` imports {len(costs)} modules in {sum(costs.values()):.0f} ms. The dearest:"
    return page(head, table(["module", "ms"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULTS / "cli_start.md", metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, daemon(Path(home)) as environment:
        text = measured_page(environment, runs=arguments.runs)
    publish(text, arguments.out)


def measured_page(environment: Mapping[str, str], *, runs: int) -> str:
    baseline = "python -c pass"
    load = os.getloadavg()[0]
    commands = {name: ("-c", ROTA, *words) for name, words in COMMANDS.items()}
    libraries = {f"import {each}": ("-c", f"import {each}") for each in LIBRARIES}
    of_commands = measure({baseline: BASELINE, **commands}, environment, runs=runs)
    of_libraries = measure({baseline: BASELINE, **libraries}, environment, runs=runs)
    return page(
        "# How fast commands start",
        "Commands on an idle daemon, in turns with `python -c pass`: medians with quartiles, and"
        " ratios of the medians. CPU is user and system time of the command's process; on a busy"
        " machine it varies less than the elapsed time. Modules are compiled before, as in an"
        f" installation. The aim: `rota list` takes at most {AIM} times as long as Python alone."
        f" Made by `python -m benchmarks.cli_start` on a machine with {machine()}; load before the"
        f" first run: {load:.1f}; {runs} runs.",
        ratios(of_commands, baseline=baseline),
        "Python with one library:",
        ratios(of_libraries, baseline=baseline),
        "Time of each import without the imports in it, the least of"
        f" {IMPORT_RUNS} runs (`-X importtime`, elapsed time):",
        *(imports(name, commands[name], environment=environment) for name in COMMANDS),
    )


if __name__ == "__main__":
    main()
