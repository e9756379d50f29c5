"""Built-in workloads: the 24 jobs of Voda's experiments, with two arrival patterns.

The order of the jobs and the gaps between submissions are from heyfey/vodascheduler, branch exp:
six jobs of each of four applications, with 1 to 4 GPUs and 2 requested. Voda used three nodes with
four GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rota.errors import UserError, shown
from rota.simulator.traces.voda import PROFILES, trace_spec
from rota.simulator.workload import Scaling, TraceEntry, Workload, workload_of

APPLICATIONS = {"I": "inceptionv3", "R": "resnet50", "V": "vgg16", "T": "transformer"}
EPOCHS = {"inceptionv3": 50, "resnet50": 50, "vgg16": 50, "transformer": 40}
ORDER = "IRIVVTTIRITVVRITIRVTVRRT"
SIZE = (1, 4, 2)
GAPS_S = {
    "run_1": (
        *(22, 27, 29, 21, 22, 26, 34, 36, 26, 26, 24, 26),
        *(28, 28, 35, 22, 21, 32, 21, 39, 38, 25, 27),
    ),
    "run_1_hard": (
        *(6, 4, 29, 26, 94, 642, 199, 261, 265, 17, 25, 110),
        *(43, 1, 10, 2, 150, 786, 369, 17, 14, 122, 24),
    ),
}


def voda_workload(name: str) -> Workload:
    """Return the workload `voda:<name>`."""
    gaps = GAPS_S.get(name)
    if gaps is None:
        known = ", ".join(f"voda:{known}" for known in GAPS_S)
        raise UserError(f"unknown built-in workload 'voda:{shown(name)}'", f"known: {known}")
    return workload_of(f"voda:{name}", _entries(gaps))


def _entries(gaps_s: Sequence[int]) -> list[TraceEntry]:
    entries: list[TraceEntry] = []
    for number, (letter, submit_s) in enumerate(
        zip(ORDER, accumulate(gaps_s, initial=0), strict=True), start=1
    ):
        application = APPLICATIONS[letter]
        profile = PROFILES[application]
        spec = trace_spec(
            f"{application}-{number:02}",
            profile,
            application=application,
            size=SIZE,
            epochs=EPOCHS[application],
        )
        runtime = Scaling(profile.one_s, profile.speedups)
        entries.append(TraceEntry(submit_s, number, spec, runtime))
    return entries
