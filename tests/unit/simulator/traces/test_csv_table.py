"""Errors in a trace name file, row and field, for every format."""

from pathlib import Path

import pytest

from rota.errors import InputError
from rota.simulator.traces import csv_table, load

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
GOOD = "2017-10-09 07:01:55,66.0,1,66.0,vc\n"


def message_of(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        load(str(path))
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(str(path), "FILE")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "FILE: is empty; the first line must name the columns"),
        ("\n\n", "FILE: is empty; the first line must name the columns"),
        (PHILLY, "FILE: has no jobs; a trace needs at least one"),
        (PHILLY + GOOD + "1,2\n", "FILE, row 3: has 2 fields, but the header has 5"),
        (PHILLY + GOOD + "1,2,3,4,5,6\n", "FILE, row 3: has 6 fields, but the header has 5"),
        (PHILLY + GOOD.replace("66.0,1", "x,1"), "FILE, row 2, field 'duration': 'x' is not a nu"),
        (PHILLY + GOOD.replace("66.0,1", "nan,1"), "FILE, row 2, field 'duration': 'nan' is not a"),
        (PHILLY + GOOD.replace("66.0,1", ",1"), "FILE, row 2, field 'duration': '' is not a numb"),
        (PHILLY + GOOD.replace("66.0,1", "-5,1"), "FILE, row 2, field 'duration': '-5' is not abo"),
        (PHILLY + GOOD.replace("66.0,1", "inf,1"), "FILE, row 2, field 'duration': 'inf' is not a"),
        (
            PHILLY + GOOD.replace("66.0,1", "0,1"),
            "FILE, row 2, field 'duration': '0' is not above 0 and at most 1e+12",
        ),
        (PHILLY + GOOD.replace(",1,", ",0,"), "FILE, row 2, field 'num_gpus': '0' is not a whole"),
        (PHILLY + GOOD.replace(",1,", ",1.5,"), "FILE, row 2, field 'num_gpus': '1.5' is not a w"),
        (PHILLY + GOOD.replace(",1,", ",513,"), "FILE, row 2, field 'num_gpus': 513 GPUs exceed"),
        (PHILLY + GOOD.replace("2017-10-09", "9.10."), "FILE, row 2, field 'timestamp': '9.10. 07"),
        (PHILLY + GOOD + '"open,1\n', "FILE, row 3: is not CSV: "),
        (PHILLY + GOOD + "a\0b,1\n", "FILE, row 3"),
        (PHILLY + GOOD + "x" * 200_000 + "\n", "FILE, row 3: is not CSV: field larger than"),
        (
            (PHILLY + GOOD).encode() + b"\xff\xfe,1\n",
            "FILE, row 3: is not UTF-8 text; save the file as",
        ),
        (PHILLY.encode("utf-16"), "FILE, row 1: is not UTF-8 text"),
    ],
)
def test_malformed_files(tmp_path: Path, content: bytes | str, message: str):
    assert message_of(tmp_path / "bad.csv", content).startswith(message)


def test_an_unknown_header_lists_the_known_ones(tmp_path: Path):
    text = message_of(tmp_path / "bad.csv", "who,what,when\n1,2,3\n")
    assert text.startswith("FILE, row 1: unknown header 'who,what,when'; the format of rota")
    for known in ("Voda: name,time", "Pollux: name,time", "Philly: timestamp", "ElasticFlow: job"):
        assert known in text


def test_a_folder_is_not_a_trace(tmp_path: Path):
    with pytest.raises(InputError, match="is not a regular file"):
        load(str(tmp_path))


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_table, "MAX_ROWS", 2)
    assert "has more than 2 rows" in message_of(tmp_path / "long.csv", PHILLY + GOOD * 3)


def test_too_many_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_table, "MAX_FILE_BYTES", 50)
    assert "above the limit of 50" in message_of(tmp_path / "long.csv", PHILLY + GOOD)


def test_a_byte_order_mark_blanks_and_empty_lines_are_harmless(tmp_path: Path):
    path = tmp_path / "good.csv"
    path.write_text("\ufeff" + PHILLY.replace(",", " , ") + "\n" + GOOD + "\n\n", encoding="utf-8")
    (job,) = load(str(path)).jobs
    assert job.row == 3


def test_a_column_twice(tmp_path: Path):
    text = message_of(tmp_path / "bad.csv", "name,submit_s,gpus,duration_s,gpus\na,0,1,1,1\n")
    assert text == "FILE, row 1, field 'gpus': the header has this column twice"
