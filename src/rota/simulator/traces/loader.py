"""Finds and reads a trace by what the user wrote: a built-in name, a generator, or a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rota.errors import PATH, WORD, InputError, UserError, Where, shown
from rota.simulator.traces import elasticflow, own, philly, pollux, synthetic, table, voda
from rota.simulator.traces.builtin import GAPS_S, builtin
from rota.simulator.workload import Workload

TRACES_VARIABLE = "ROTA_TRACES"


@dataclass(frozen=True, slots=True)
class Reader:
    """A kind of CSV file that is recognised by its header."""

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
"""Besides these, every header with the columns of our own format."""


def load(trace: str, traces_dir: Path | None = None, *, seed: int | None = None) -> Workload:
    """The workload that `trace` names.

    A file is looked for as written, then in `traces_dir`, which defaults to `ROTA_TRACES`.
    `seed` serves generators whose text names none.
    """
    kind, colon, rest = trace.partition(":")
    if kind == "voda" and colon:
        return builtin(rest)
    if kind == synthetic.PREFIX:
        return synthetic.synthetic(rest, seed)
    if not trace:
        raise UserError("the trace has no name", "give a file, voda:run_1 or synthetic:jobs=500")
    return read_file(_find(trace, traces_dir), trace)


def read_file(path: Path, file: str) -> Workload:
    """Reads a trace whatever its format; `file` is how messages call it."""
    table.check_file(path, file)
    if _starts_json(path):
        return own.read_jsonl(path, file)
    header = table.read_header(path, file)
    for reader in READERS:
        if header == reader.header:
            return reader.read(path, file)
    if own.is_own(header):
        return own.read(path, file)
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
            raise UserError(f"trace '{shown(trace, PATH)}' cannot be a file: {error}") from None
    looked = " and ".join(f"'{shown(str(place), PATH)}'" for place in places)
    names = ", ".join(f"voda:{name}" for name in GAPS_S)
    how = (
        f"or name the folder of the traces with --traces DIR or {TRACES_VARIABLE}"
        if folder is None
        else f"the folder of the traces is '{shown(str(folder), PATH)}'"
    )
    raise UserError(
        f"no trace '{shown(trace, PATH)}': looked for {looked}",
        f"give a file, {names} or synthetic:jobs=500,seed=1; {how}",
    )


def _starts_json(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def _unknown_header(file: str, header: tuple[str, ...]) -> InputError:
    known = "; ".join(f"{reader.name}: {','.join(reader.header)}" for reader in READERS)
    missing = [name for name in own.REQUIRED if name not in header]
    return InputError(
        Where(file, 1),
        f"no known format has the header '{shown(','.join(header), 2 * WORD)}'",
        f"our own needs {','.join(own.REQUIRED)} (missing: {', '.join(missing)}); others: {known}",
    )
