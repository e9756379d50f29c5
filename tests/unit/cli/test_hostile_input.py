"""The error about hostile input is one short line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Rota

HEADER = "name,submit_s,gpus,duration_s"
BEEP = "\x1b]0;owned\x07"
LONG = BEEP + "9" * 100_000 + "x"
LONGEST_LINE = 1_020


def complaint(rota: Rota, *arguments: str, stdin: bytes = b"") -> str:
    result = rota(*arguments, stdin=stdin)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("rota: ")
    assert result.err.endswith("\n")
    assert result.err[:-1].isprintable()
    assert len(result.err) < LONGEST_LINE
    return result.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["simulate", LONG, "--cluster", "1x1"], r"'\x1b]0;owned\x079"),
        (["simulate", f"voda:{LONG}", "--cluster", "1x1"], "unknown built-in workload"),
        (["simulate", f"synthetic:jobs={LONG}", "--cluster", "1x1"], "jobs='\\x1b]0;owned"),
        (["simulate", "voda:run_1", "--cluster", LONG], r"cluster '\x1b]0;owned\x07999"),
        (["simulate", "voda:run_1", "--cluster", "1x1", "--policy", LONG], "no policy '"),
        (["simulate", "voda:run_1", "--cluster", "1x1", "--html", f"/{LONG}/x"], "cannot write /"),
        (["simulate", "voda:run_1", "--cluster", "1x1", "--round", LONG], "'--round'"),
        (["simulate", "voda:run_1", f"--{LONG}"], "no such option"),
        (["policy", "show", f"./{LONG}.py:A"], "no Python file './"),
        (["policy", "decide", f"tiresias:{LONG}=1"], "has no parameter '"),
        (["policy", "decide", f"tiresias:knob={LONG}"], "must be a number above 0, not '"),
    ],
)
def test_flags(rota: Rota, arguments: list[str], what: str) -> None:
    assert what in complaint(rota, *arguments)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["", "--cluster", "1x1"], "argument 'TRACE' is empty; see 'rota simulate --help'"),
        (["synthetic:jobs=1,jobs=2", "--cluster", "1x1"], "synthetic: jobs is given twice"),
        (["synthetic:jobs=1_0", "--cluster", "1x1"], "jobs='1_0' is not a whole number"),
        (["voda:run_1", "--cluster", "100000x1024"], "102,400,000 GPUs exceed the limit"),
        (["voda:run_1", "--cluster", "1x1", "--policy", "tiresias:knob=1_0"], "not '1_0'"),
    ],
)
def test_flags_that_look_right(rota: Rota, arguments: list[str], what: str) -> None:
    assert what in complaint(rota, "simulate", *arguments)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (f"{HEADER}\na\0b,0,1,60", "row 2, field 'name': contains a NUL byte"),
        (f"{HEADER}\na,0,1,6_0", "row 2, field 'duration_s': '6_0' is not a number"),
        (f"{HEADER}\na,0,1,６０", "row 2, field 'duration_s': '６０' is not a number"),  # noqa: RUF001
        (f'{HEADER}\n"a,0,1,60\nb,0,1,60\n', "row 2: is not CSV: a quote is never"),
        (f'{HEADER}\n"' + "a\n" * 100_000, "row 2: is not CSV: field larger"),
        ('{"name": "a"\n', "row 1: is not JSON: expecting ',' delimiter at column 14"),
        ('{"name": ' + "9" * 5000 + "}", "row 1: is not JSON: a number has thousands of digits"),
    ],
)
def test_traces_that_look_right(rota: Rota, tmp_path: Path, content: str, place: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(content, encoding="utf-8")
    assert place in complaint(rota, "simulate", str(trace), "--cluster", "1x1")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (LONG, "row 1: unknown header"),
        (f"{HEADER},{LONG}", "row 1, field '\\x1b]0;owned"),
        (f"{HEADER},{LONG},{LONG}\na,0,1,1,1,1", "row 1, field '\\x1b]0;owned"),
        (f"{HEADER}\n{LONG},0,9,60", r"row 2, field 'gpus': job '\x1b]0;owned"),
        (f"{HEADER}\na,{LONG},1,60", "row 2, field 'submit_s': '"),
        (f"{HEADER}\na,0,{LONG},60", "row 2, field 'gpus': '"),
        (f"{HEADER}\na,0,1,{LONG}", "row 2, field 'duration_s': '"),
        (f"{HEADER},mode\na,0,1,1,{LONG}", "row 2, field 'mode': unknown mode '"),
        (f"{HEADER},memory\na,0,1,1,{LONG}", "row 2, field 'memory': '"),
        (f"{HEADER},gpu_types\na,0,1,1,{LONG}", "row 2, field 'gpu_types': job 'a'"),
        (f"{HEADER},node_labels\na,0,1,1,{LONG}", "row 2, field 'node_labels': '"),
        (f"{HEADER},node_labels\na,0,1,1,k={LONG}", "row 2, field 'node_labels': job 'a'"),
    ],
)
def test_traces(rota: Rota, tmp_path: Path, content: str, place: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(content, encoding="utf-8")
    assert place in complaint(rota, "simulate", str(trace), "--cluster", "1x1")


@pytest.mark.parametrize(
    "case",
    [
        '{"gpus": 1, "jobs": [], "WORD": 1}',
        '{"gpus": "WORD", "jobs": []}',
        '{"gpus": 1, "jobs": [{"name": "WORD", "min": 2, "max": 1}]}',
        '{"gpus": 1, "jobs": [{"name": "a", "min": 1, "max": 1, "WORD": 1}]}',
        "WORD",
    ],
)
def test_cases(rota: Rota, case: str) -> None:
    line = case.replace("WORD", "\\u001b" + "9" * 100_000).encode()
    assert "line 1" in complaint(rota, "policy", "decide", "fifo", stdin=line)


NOT_UTF8 = "\udcff"


@pytest.mark.parametrize(
    "words",
    [
        ["show", NOT_UTF8],
        ["cancel", "a", NOT_UTF8],
        ["logs", NOT_UTF8],
        ["list", "-u", NOT_UTF8],
        ["nodes", "drain", NOT_UTF8],
        ["token", "revoke", NOT_UTF8],
        ["show", "--", NOT_UTF8],
        ["submit", "--name", NOT_UTF8, "--", "true"],
    ],
)
def test_arguments_that_are_not_utf8(rota: Rota, words: list[str]) -> None:
    assert r"'\udcff' is not UTF-8 text; see 'rota " in complaint(rota, *words)
