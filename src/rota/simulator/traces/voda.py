"""Reads the experiments of Voda: jobs of applications with measured run times and speed-ups.

`profiles.csv` in the directory of the trace has the run time on one GPU and the speed-ups of each
application. Other applications use the built-in profiles. The scheduler knows the profiles, as the
scheduler of Voda does from its base records.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rota.core.model.job import Estimate, JobSpec
from rota.errors import MAX_SHOWN_CHARS, shown
from rota.simulator.traces.csv_table import CsvRow, read_header, read_rows
from rota.simulator.workload import Scaling, TraceEntry, Workload, workload_of

HEADER = ("name", "time", "application", "num_proc", "min_num_proc", "max_num_proc", "epochs")

_SPEEDUP = "speedup_"


@dataclass(frozen=True, slots=True)
class ApplicationProfile:
    """The seconds of a whole training on one GPU, and the speed-ups on 0, 1, 2, ... GPUs."""

    one_s: float
    speedups: tuple[float, ...]


PROFILES = {
    "vgg16": ApplicationProfile(1465, (0, 1, 1.785, 2.5, 3.125)),
    "resnet50": ApplicationProfile(1545, (0, 1, 1.857, 2.6, 3.25)),
    "inceptionv3": ApplicationProfile(3977, (0, 1, 1.842, 2.692, 3.5)),
    "transformer": ApplicationProfile(2620, (0, 1, 1.657, 2.148, 2.521)),
}
"""Run times are medians over the logs of heyfey/vodascheduler, branch exp (InceptionV3: a single
sample). Speed-ups are the base records of its author."""


def read(path: Path, file: str) -> Workload:
    profiles = dict(PROFILES)
    beside = path.with_name("profiles.csv")
    if beside.exists():
        profiles |= read_profiles(beside, str(Path(file).with_name("profiles.csv")))
    entries = [_entry(row, profiles) for row in read_rows(path, file, needed=HEADER)]
    return workload_of(file, entries, gpus_field="num_proc")


def read_profiles(path: Path, file: str) -> dict[str, ApplicationProfile]:
    sizes = [name for name in read_header(path, file) if name.startswith(_SPEEDUP)]
    wanted = [f"{_SPEEDUP}{n}" for n in range(1, max(1, len(sizes)) + 1)]
    return {
        row.name("application"): ApplicationProfile(
            row.positive("run_time_1gpu_s"), (0.0, *(row.positive(name) for name in wanted))
        )
        for row in read_rows(path, file, needed=("application", "run_time_1gpu_s", *wanted))
    }


def trace_spec(
    name: str,
    profile: ApplicationProfile,
    *,
    application: str,
    size: tuple[int, int, int],
    epochs: int,
) -> JobSpec:
    """`size` is minimum, maximum and requested number of GPUs."""
    return JobSpec(
        name=name,
        min_workers=size[0],
        max_workers=size[1],
        requested_workers=size[2],
        epochs=epochs,
        estimate=Estimate(profile.one_s, 1, profile.speedups),
        category=application,
    )


def _entry(row: CsvRow, profiles: dict[str, ApplicationProfile]) -> TraceEntry:
    application = row.name("application")
    profile = profiles.get(application)
    if profile is None:
        known = shown(", ".join(sorted(profiles)), 2 * MAX_SHOWN_CHARS)
        raise row.error(
            "application", f"'{shown(application)}' has no profile", hint=f"known: {known}"
        )
    least, most, requested = (
        row.whole(field) for field in ("min_num_proc", "max_num_proc", "num_proc")
    )
    if least > most:
        raise row.error("min_num_proc", f"the minimum {least} is above the maximum {most}")
    if not least <= requested <= most:
        raise row.error("num_proc", f"{requested} is not between {least} and {most}")
    if most >= len(profile.speedups):
        raise row.error(
            "max_num_proc",
            f"the profile of {shown(application)} ends at {len(profile.speedups) - 1} GPUs",
        )
    spec = trace_spec(
        row.name("name"),
        profile,
        application=application,
        size=(least, most, requested),
        epochs=row.whole("epochs"),
    )
    runtime = Scaling(profile.one_s, profile.speedups)
    return TraceEntry(row.number("time"), row.line, spec, runtime)
