"""Loads the trace that the user names: a built-in workload, a generator, or a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rota.errors import (
    MAX_SHOWN_CHARS,
    MAX_SHOWN_PATH_CHARS,
    InputError,
    InputLocation,
    UserError,
    shown,
)
from rota.simulator.traces import csv_table, elasticflow, native, philly, pollux, synthetic, voda
from rota.simulator.traces.voda_builtin import GAPS_S, voda_workload
from rota.simulator.workload import Workload

TRACES_VARIABLE = "ROTA_TRACES"


@dataclass(frozen=True, slots=True)
class Reader:
    """A CSV format, identified by its header."""

    name: str
    header: tuple[str, ...]
    read: Callable[[Path, str], Workload]


READERS = (
    Reader("Voda", voda.HEADER, voda.read),
    Reader("Pollux", pollux.HEADER, pollux.read),
    Reader("Philly", philly.HEADER, philly.read),
    Reader("ElasticFlow", elasticflow.HEADER, elasticflow.read),
    Reader("ElasticFlow with models", elasticflow.HEADER_WITH_MODELS, elasticflow.read),
)
"""The public formats. A header with the required columns of the native format is also accepted."""


def load(trace: str, traces_dir: Path | None = None, *, seed: int | None = None) -> Workload:
    """Load the workload that `trace` names.

    A file path is tried as given, then relative to `traces_dir`, which defaults to `ROTA_TRACES`.
    `seed` is the seed of a generator whose text has none.
    """
    kind, colon, rest = trace.partition(":")
    if kind == "voda" and colon:
        return voda_workload(rest)
    if kind == synthetic.PREFIX:
        return synthetic.synthetic(rest, seed)
    if not trace:
        raise UserError(
            "the name of the trace is empty", "pass a file, voda:run_1 or synthetic:jobs=500"
        )
    return read_file(_find(trace, traces_dir), trace)


def read_file(path: Path, file: str) -> Workload:
    """Read a trace file of any format. `file` is its name in error messages."""
    csv_table.check_file(path, file)
    if _starts_json(path):
        return native.read_jsonl(path, file)
    header = csv_table.read_header(path, file)
    for reader in READERS:
        if header == reader.header:
            return reader.read(path, file)
    if native.is_native(header):
        return native.read(path, file)
    raise _unknown_header(file, header)


def _find(trace: str, traces_dir: Path | None) -> Path:
    folder = traces_dir
    if folder is None and (setting := os.environ.get(TRACES_VARIABLE)):
        folder = Path(setting)
    places = [Path(trace)] if folder is None else [Path(trace), folder / trace]
    for place in places:
        try:
            if place.exists():
                return place
        except (OSError, ValueError) as error:
            raise UserError(
                f"trace '{shown(trace, MAX_SHOWN_PATH_CHARS)}' is not a valid path: {error}"
            ) from None
    looked = " and ".join(f"'{shown(str(place), MAX_SHOWN_PATH_CHARS)}'" for place in places)
    names = ", ".join(f"voda:{name}" for name in GAPS_S)
    how = (
        f"or set the directory of the traces with --traces DIR or {TRACES_VARIABLE}"
        if folder is None
        else f"the directory of the traces is '{shown(str(folder), MAX_SHOWN_PATH_CHARS)}'"
    )
    raise UserError(
        f"trace '{shown(trace, MAX_SHOWN_PATH_CHARS)}' not found: tried {looked}",
        f"pass a file, {names} or synthetic:jobs=500,seed=1; {how}",
    )


def _starts_json(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def _unknown_header(file: str, header: tuple[str, ...]) -> InputError:
    known = "; ".join(f"{reader.name}: {','.join(reader.header)}" for reader in READERS)
    missing = [name for name in native.REQUIRED if name not in header]
    return InputError(
        InputLocation(file, 1),
        f"unknown header '{shown(','.join(header), 2 * MAX_SHOWN_CHARS)}'",
        f"the format of rota needs {','.join(native.REQUIRED)}"
        f" (missing: {', '.join(missing)}); other formats: {known}",
    )
