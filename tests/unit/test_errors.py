"""Values from users are cut and escaped in messages."""

import pytest

from rota.errors import InputError, InputLocation, shown


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
