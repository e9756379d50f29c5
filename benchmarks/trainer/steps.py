"""Measures what `rota_trainer` adds to a step: loops with and without it, alternating.

Run as a script, alone or as a job. Prints the results as JSON.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median, quantiles

import rota_trainer as trainer

STEPS_MS = (1, 50)
N_PAIRS = 9
FEWEST_PAIRS = 3
LONGEST_S = 15.0
"""A machine that is busy with something else makes fewer pairs."""
BLOCK_S = {1: 0.3, 50: 0.6}
BYTES = bytes(16 * 1024)
N_EMPTY = 20_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over pairs of blocks. `ratios` are the quartiles."""

    step_ms: int
    bare_ms: float
    with_ms: float
    ratios: list[float]


def main() -> None:
    run = trainer.start()
    figures: list[Figures] = []
    empty_us = 0.0
    for _ in run.epochs(1):
        figures = [measure(run, each) for each in STEPS_MS]
        empty_us = 1e6 * block(run.steps(range(N_EMPTY)), lambda: None, n_steps=N_EMPTY)
        run.report(loss=0.1)
    print(json.dumps({"steps": [asdict(each) for each in figures], "empty_us": empty_us}))


def measure(run: trainer.Run, step_ms: int) -> Figures:
    n_hashes = round(step_ms * 1e-3 / seconds_of_hash())
    n_steps = max(4, round(BLOCK_S[step_ms] / (step_ms * 1e-3)))

    def work() -> None:
        for _ in range(n_hashes):
            hashlib.sha256(BYTES).digest()

    pairs: list[tuple[float, float]] = []
    give_up_at_s = time.monotonic() + LONGEST_S
    while len(pairs) < N_PAIRS and (len(pairs) < FEWEST_PAIRS or time.monotonic() < give_up_at_s):
        bare_s = block(range(n_steps), work, n_steps=n_steps)
        pairs.append((bare_s, block(run.steps(range(n_steps)), work, n_steps=n_steps)))
    return Figures(
        step_ms,
        bare_ms=1e3 * median(bare for bare, _ in pairs),
        with_ms=1e3 * median(ours for _, ours in pairs),
        ratios=quantiles((ours / bare for bare, ours in pairs), n=4),
    )


def seconds_of_hash() -> float:
    """CPU time of one hash. With wall time, a busy machine would make the steps too short."""
    n_hashes = 2000
    began_s = time.thread_time()
    for _ in range(n_hashes):
        hashlib.sha256(BYTES).digest()
    return (time.thread_time() - began_s) / n_hashes


def block(steps: Iterable[int], work: Callable[[], None], *, n_steps: int) -> float:
    """Wall time of a step in seconds."""
    began_s = time.perf_counter()
    for _ in steps:
        work()
    return (time.perf_counter() - began_s) / n_steps


if __name__ == "__main__":
    main()
