"""A profile with all fields, for tables and plots."""

from __future__ import annotations

from rota.wire.training import Handling, JobProfile, SizeFigure, StepFigure, WorkerFigure

GIB = 2**30
BEGAN_S = 1_789_993_000.0

SIZES = [
    SizeFigure(1, "measured", "category", count=3, epoch_s=840.0, epoch_error=0.04, speedup=1.0),
    SizeFigure(1, "fitted", "category", epoch_s=840.0, epoch_error=0.04, speedup=1.0),
    SizeFigure(
        2,
        "measured",
        "here",
        count=4,
        epoch_s=456.5,
        epoch_error=0.03,
        speedup=1.84,
        speedup_error=0.05,
    ),
    SizeFigure(
        2,
        "measured",
        "here",
        crosses_nodes=True,
        count=1,
        epoch_s=520.0,
        epoch_error=0.1,
        speedup=1.615,
        speedup_error=0.108,
    ),
    SizeFigure(
        2, "fitted", "here", epoch_s=469.2, epoch_error=0.04, speedup=1.79, speedup_error=0.06
    ),
    SizeFigure(
        3, "fitted", "here", epoch_s=336.0, epoch_error=0.06, speedup=2.5, speedup_error=0.06
    ),
    SizeFigure(
        4, "fitted", "here", epoch_s=271.0, epoch_error=0.06, speedup=3.1, speedup_error=0.06
    ),
]


def steps() -> list[StepFigure]:
    """Two workers over an hour; the second slows down after half of it."""
    found: list[StepFigure] = []
    for number in range(30):
        for worker in range(2):
            slow = 1.5 if worker and number >= 15 else 1.0
            metrics = {"loss": 2.0 / (1 + number), "accuracy": 0.03 * number}
            step_s = (0.050 + 0.002 * (number % 3)) * slow
            found.append(
                StepFigure(
                    at_s=BEGAN_S + 120.0 * number,
                    attempt=1,
                    worker=worker,
                    gpus=2,
                    epochs_done=0.15 * number,
                    step_s=step_s,
                    samples_per_s=32 / step_s,
                    memory_bytes=3 * GIB + number * GIB // 20,
                    gpu_memory_bytes=10 * GIB,
                    metrics={} if worker else metrics,
                )
            )
    return found


PROFILE = JobProfile(
    id="1q1ghcmf",
    name="bert",
    category="0123456789abcdef",
    min_gpus=1,
    max_gpus=4,
    epochs=10,
    epochs_done=4.5,
    sizes=SIZES,
    steps=steps(),
    workers=[
        WorkerFigure(0, "box", 0.054, 592.6, int(4.45 * GIB), 10 * GIB),
        WorkerFigure(1, "box", 0.081, 395.1, int(4.45 * GIB), 10 * GIB, 1.5),
    ],
    handling=Handling(start_s=12.25, save_s=0.84, load_s=None, stop_s=3.0),
    metrics={"loss": 0.0667, "accuracy": 0.87},
    lost_s=754.0,
)
