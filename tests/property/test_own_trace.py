"""Our own trace format says the same in both of its forms, and says what was written."""

import contextlib
import csv
import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rota.core.model.job import Mode
from rota.errors import UserError
from rota.simulator.traces import load
from rota.simulator.traces.native import COLUMNS

Fields = dict[str, str]

words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)
seconds = st.floats(0.001, 1e9, allow_nan=False).map(repr)


@st.composite
def jobs(draw: st.DrawFn) -> Fields:
    """A legal job as the fields of a row."""
    per_worker = draw(st.integers(1, 8))
    least = draw(st.integers(1, 16))
    most = draw(st.integers(least, 32))
    requested = draw(st.integers(least, most))
    low, high, wanted = (size * per_worker for size in (least, most, requested))
    more = draw(st.lists(st.floats(0.1, 100), min_size=most - 1, max_size=most - 1))
    return {
        "name": draw(words),
        "submit_s": draw(seconds),
        "gpus": f"{low}..{high}@{wanted}",
        "duration_s": draw(seconds),
        "gpus_per_worker": str(per_worker),
        "user": draw(words | st.just("")),
        "priority": str(draw(st.integers(-1000, 1000))),
        "mode": draw(st.sampled_from(Mode)),
        "epochs": str(draw(st.integers(1, 1000))),
        "speedups": draw(st.sampled_from(["", "|".join(map(repr, [1.0, *more]))])),
    }


def write_csv(path: Path, rows: list[Fields]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows([row.get(name, "") for name in COLUMNS] for row in rows)


def write_jsonl(path: Path, rows: list[Fields]) -> None:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")


@given(st.lists(jobs(), min_size=1, max_size=5))
def test_both_forms_give_what_was_written(rows: list[Fields]):
    with tempfile.TemporaryDirectory() as folder:
        write_csv(Path(folder) / "t.csv", rows)
        write_jsonl(Path(folder) / "t.jsonl", rows)
        from_csv = load(str(Path(folder) / "t.csv")).jobs
        from_json = load(str(Path(folder) / "t.jsonl")).jobs
    assert [(j.id, j.submit_s, j.spec, j.runtime) for j in from_csv] == [
        (j.id, j.submit_s, j.spec, j.runtime) for j in from_json
    ]
    for job in from_csv:
        row, spec = rows[job.row - 2], job.spec
        sizes = (spec.min_workers, spec.max_workers, spec.requested_workers)
        low, high, wanted = (size * spec.gpus for size in sizes)
        assert f"{low}..{high}@{wanted}" == row["gpus"]
        assert (spec.name, spec.user, spec.mode) == (row["name"], row["user"], row["mode"])
        assert (job.submit_s, spec.priority) == (float(row["submit_s"]), int(row["priority"]))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_file_does_worse_than_a_message(content: bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        for start in (b"", b"name,submit_s,gpus,duration_s\na,", b'{"name": "a", "gpus": '):
            path.write_bytes(start + content)
            with contextlib.suppress(UserError):
                load(str(path))
