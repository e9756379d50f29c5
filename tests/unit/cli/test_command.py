"""Words of a command line become values, or one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.cli.command import (
    Command,
    CommandArgument,
    CommandOption,
    UsageError,
    decimal,
    flag,
    is_help,
    parse,
    whole,
)

COMMAND = Command(
    "try",
    lambda **_: None,
    parameters=[
        CommandArgument("job", metavar="JOB", text=""),
        CommandArgument("words", metavar="WORD...", text="", is_repeatable=True, is_required=False),
        flag("--all", "-a", name="is_all", text=""),
        flag("--quick", "-q", name="is_quick", text=""),
        CommandOption("--name", "-n", name="name", text="", metavar="N", parse=str, default="none"),
        CommandOption("--size", name="size", text="", metavar="N", parse=whole),
        CommandOption("--rate", name="rate", text="", metavar="N", parse=decimal),
        CommandOption(
            "--tag", "-t", name="tags", text="", metavar="T", parse=str, is_repeatable=True
        ),
        CommandOption("--file", name="file", text="", metavar="F", parse=Path),
    ],
    epilog="",
)
NOTHING: dict[str, Any] = {
    "words": [],
    "is_all": False,
    "is_quick": False,
    "name": "none",
    "size": None,
    "rate": None,
    "tags": None,
    "file": None,
}


def values(*words: str) -> dict[str, Any]:
    return parse(COMMAND, words, path="rota try")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], {}),
        (["a", "b", "c"], {"words": ["b", "c"]}),
        (["a", "--all", "b", "-q", "c"], {"words": ["b", "c"], "is_all": True, "is_quick": True}),
        (["-aq", "a"], {"is_all": True, "is_quick": True}),
        (["a", "--name=x=y"], {"name": "x=y"}),
        (["a", "--name", "x", "-ny"], {"name": "y"}),
        (["a", "--name", "two words"], {"name": "two words"}),
        (["a", "--name=-x"], {"name": "-x"}),
        (["a", "-t", "1", "--tag=2"], {"tags": ["1", "2"]}),
        (["a", "--size", "-3"], {"size": -3}),
        (["a", "--rate=-1e3"], {"rate": -1000.0}),
        (["a", "--file", "-"], {"file": Path("-")}),
        (["a", "-"], {"words": ["-"]}),
        (["a", "--", "sh", "-c", "--", "--all"], {"words": ["sh", "-c", "--", "--all"]}),
        (["--all", "a", "--", "--"], {"words": ["--"], "is_all": True}),
    ],
)
def test_values(words: list[str], expected: dict[str, Any]):
    assert values(*words) == {**NOTHING, "job": "a", **expected}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing argument 'JOB'; see 'rota try --help'"),
        (["a", "--al"], "no such option: --al, did you mean '--all'?"),
        (["a", "-x"], "no such option: -x; see 'rota try --help'"),
        (["a", "--zzz=1"], "no such option: --zzz; see 'rota try --help'"),
        (["a", "--name"], "option '--name' requires a value (write --name=VALUE); see "),
        (["a", "--name", "--all"], "option '--name' requires a value (write --name=VALUE); see "),
        (["a", "--all=1"], "option '--all' takes no value; see 'rota try --help'"),
        (["a", "--size", "1_0"], "invalid value for '--size': '1_0' is not a whole number; see "),
        (["a", "--size", "9" * 19], "invalid value for '--size': '9999"),
        (["a", "--rate", "１"], "invalid value for '--rate': '１' is not a number; see "),  # noqa: RUF001
    ],
)
def test_errors(words: list[str], message: str):
    with pytest.raises(UsageError) as caught:
        values(*words)
    assert str(caught.value).startswith(message)


def test_too_many_arguments():
    only = Command(
        "one",
        lambda **_: None,
        parameters=[CommandArgument("job", metavar="JOB", text="")],
        epilog="",
    )
    with pytest.raises(UsageError, match="unexpected argument 'b'"):
        parse(only, ["a", "b"], path="rota one")


PROGRAM = Command(
    "run",
    lambda **_: None,
    parameters=[
        CommandArgument("job", metavar="JOB", text=""),
        CommandArgument(
            "words",
            metavar="COMMAND...",
            text="",
            is_repeatable=True,
            is_required=False,
            is_program=True,
        ),
        flag("--all", "-a", name="is_all", text=""),
        CommandOption("--name", "-n", name="name", text="", metavar="N", parse=str),
    ],
    epilog="",
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a", "sh", "--all"], {"words": ["sh", "--all"]}),
        (["a", "--all", "sh", "-n", "3"], {"words": ["sh", "-n", "3"], "is_all": True}),
        (["-n", "x", "a", "sh", "--help"], {"words": ["sh", "--help"], "name": "x"}),
        (["--name", "x", "-a", "a", "sh", "--", "y"], {"words": ["sh", "--", "y"], "name": "x"}),
        (["-anx", "a", "sh", "-q"], {"words": ["sh", "-q"], "name": "x", "is_all": True}),
        (["-an", "x", "a", "sh"], {"words": ["sh"], "name": "x", "is_all": True}),
        (["a", "--name=x", "--", "--all", ""], {"words": ["--all", ""], "name": "x"}),
    ],
)
def test_options_after_the_first_word_belong_to_the_program(
    words: list[str], expected: dict[str, Any]
):
    found = parse(PROGRAM, words, path="rota run")
    is_all = "-a" in words or "--all" in words[:2] or "-an" in words or "-anx" in words
    assert found == {"job": "a", "words": [], "name": None, "is_all": is_all, **expected}


def test_help_of_the_program_is_not_that_of_rota():
    assert not is_help(PROGRAM, ["a", "sh", "--help"])
    assert is_help(PROGRAM, ["a", "--help"])


@pytest.mark.parametrize("words", [["a", "--name="], ["a", "--name", ""], ["a", "-n", ""]])
def test_an_option_with_an_empty_value_is_refused(words: list[str]):
    with pytest.raises(UsageError, match="option '--name' has an empty value"):
        values(*words)


def test_an_empty_argument_is_refused():
    with pytest.raises(UsageError, match="argument 'JOB' is empty"):
        values("")
