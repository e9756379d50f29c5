"""How long commands take to start, compared with `python -c pass`, and what each import costs.

    python -m benchmarks.cli_start --runs 40

Starts an idle daemon with virtual GPUs in a temporary folder, runs each command many times in turns
with `python -c pass`, and prints the medians. CPU time is user and system time of the process: on a
busy machine it varies less than the elapsed time. docs/results/cli_start.md holds a measured table.
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
MOST_IMPORTS = 15


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


def table(samples: Mapping[str, list[Sample]], *, baseline: str) -> list[str]:
    lines = [
        "| command | CPU ms, median (quartiles) | ratio | elapsed ms, median (quartiles) | ratio |",
        "|---|---|---|---|---|",
    ]
    base_cpu = statistics.median(each.cpu_ms for each in samples[baseline])
    base_wall = statistics.median(each.wall_ms for each in samples[baseline])
    for name, each in samples.items():
        cpu = statistics.quantiles([sample.cpu_ms for sample in each])
        wall = statistics.quantiles([sample.wall_ms for sample in each])
        lines.append(
            f"| `{name}` | {cpu[1]:.0f} ({cpu[0]:.0f} to {cpu[2]:.0f}) | {cpu[1] / base_cpu:.1f}"
            f" | {wall[1]:.0f} ({wall[0]:.0f} to {wall[2]:.0f}) | {wall[1] / base_wall:.1f} |"
        )
    return lines


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


def print_imports(name: str, words: Sequence[str], *, environment: Mapping[str, str]) -> None:
    without = import_costs(BASELINE, environment)
    costs = {
        module: own
        for module, own in import_costs(words, environment).items()
        if module not in without
    }
    dearest = sorted(costs.items(), key=lambda each: -each[1])[:MOST_IMPORTS]
    print(
        f"\n`{name}` imports {len(costs)} modules in {sum(costs.values()):.1f} ms; the dearest:\n"
    )
    print("| module | ms |\n|---|---|")
    for module, own in dearest:
        print(f"| `{module}` | {own:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=40, metavar="N")
    runs: int = parser.parse_args().runs
    baseline = "python -c pass"
    with tempfile.TemporaryDirectory() as home, daemon(Path(home)) as environment:
        commands = {name: ("-c", ROTA, *words) for name, words in COMMANDS.items()}
        print(
            "\n".join(
                table(
                    measure({baseline: BASELINE, **commands}, environment, runs=runs),
                    baseline=baseline,
                )
            )
        )
        print("\nPython with one library:\n")
        imports = {f"import {each}": ("-c", f"import {each}") for each in LIBRARIES}
        print(
            "\n".join(
                table(
                    measure({baseline: BASELINE, **imports}, environment, runs=runs),
                    baseline=baseline,
                )
            )
        )
        for name in ("rota --help", "rota list", "rota submit"):
            print_imports(name, commands[name], environment=environment)


if __name__ == "__main__":
    main()
