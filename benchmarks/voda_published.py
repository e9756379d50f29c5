"""What Voda measured: read off the logs of heyfey/vodascheduler, branch exp."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """One row of Voda's own results, read off the logs of its branch exp."""

    trace: str
    algorithm: str
    makespan_s: float
    mean_jct_s: float
    p95_jct_s: float
    mean_wait_s: float
    mean_gpu_s: float
    workers_moved: int
    rescheds: int


PUBLISHED = (
    Published("run_1", "ElasticFIFO", 6196, 3506, 5173, 1118, 2789, 75, 26),
    Published("run_1", "ElasticTiresias", 7269, 4506, 6756, 2801, 3459, 115, 51),
    Published("run_1", "FfDLOptimizer", 6071, 3504, 5137, 1121, 2811, 74, 26),
    Published("run_1", "AFS-L", 6017, 3079, 5714, 862, 2859, 78, 26),
    Published("run_1_hard", "ElasticFIFO", 6442, 2549, 4203, 308, 3013, 98, 32),
    Published("run_1_hard", "ElasticTiresias", 7344, 3276, 5808, 1533, 3491, 108, 52),
    Published("run_1_hard", "FfDLOptimizer", 6364, 2586, 4489, 297, 3031, 92, 32),
    Published("run_1_hard", "AFS-L", 6893, 2711, 5312, 350, 3244, 110, 34),
)
