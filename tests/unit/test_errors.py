"""Values from users are cut and escaped in messages."""

import pytest

from rota.errors import (
    MAX_SUGGESTION_CHARS,
    InputError,
    InputLocation,
    did_you_mean,
    internal_error_message,
    shown,
)


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("fifo", "fifo"),
        ("é ", "é "),
        ("", ""),
        ("a\x1b[31mred\x00\n\tb", r"a\x1b[31mred\x00\n\tb"),
        ("\u202egnp.exe \udcff", r"\u202egnp.exe \udcff"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 57 + "..."),
    ],
)
def test_a_value_is_cut_and_escaped(text: str, repeated: str) -> None:
    assert shown(text) == repeated


def test_the_place_of_a_mistake_is_cut_and_escaped() -> None:
    place = InputLocation("\x1b" + "f" * 10**6, row=3, field="\x07" * 10**6)
    message = str(InputError(place, "is wrong"))
    assert len(message) < 600
    assert message.isprintable()
    assert message.startswith(r"\x1bff")
    assert "..., row 3, field '" in message


def test_only_a_word_of_bounded_length_gets_a_suggestion() -> None:
    """A key of a request may have 16 MiB, and the comparison takes time for each character."""
    longest = "a" * MAX_SUGGESTION_CHARS
    assert did_you_mean(longest, [longest + "b"])
    assert did_you_mean(longest + "a", [longest + "b"]) == ""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("hunter2"), "KeyError: ..."),
        (ValueError("no number: 'it' or \"that\""), "ValueError: no number: ... or ..."),
        (ValueError("cut off: 'hunter2"), "ValueError: cut off: ..."),
        (TypeError("TOKEN=hunter2 in /home/ada/x"), "TypeError: TOKEN=... in ..."),
        (RuntimeError("rotajob_0123456789abcdef is bad"), "RuntimeError: ... is bad"),
        (AssertionError(), "AssertionError"),
        (ValueError("\x1b[31mred"), r"ValueError: \x1b[31mred"),
    ],
)
def test_an_internal_error_is_told_without_values(error: Exception, told: str) -> None:
    assert internal_error_message(error) == told
