"""Makes text that programs and users wrote safe for a terminal.

A terminal obeys control sequences: they change its title, write its clipboard, hide lines or type
answers. Colours, tabs, backspaces, carriage returns and line ends stay, as progress bars need them.
"""

from __future__ import annotations

import codecs
import re

from rota.errors import printable

_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_CONTROL = r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Control characters, and those that reverse the direction of text."""
_SEQUENCE = re.compile(f"{_COLOUR}|{_CONTROL}")
_BEGUN_COLOUR = re.compile(r"\x1b(\[[0-9;:]{0,40})?\Z")


def neutralise(text: str) -> str:
    """The text with visible escapes in place of control characters."""
    return _SEQUENCE.sub(lambda found: _visible(found[0]), text)


def _visible(found: str) -> str:
    return found if len(found) > 1 else printable(found)


class EscapeFilter:
    """Neutralises output that arrives in pieces, which may end within a character or a colour."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def feed(self, chunk: bytes) -> str:
        text = self._begun + self._decoder.decode(chunk)
        begun = _BEGUN_COLOUR.search(text)
        end = begun.start() if begun else len(text)
        self._begun = text[end:]
        return neutralise(text[:end])

    def finish(self) -> str:
        """The rest, which has no end."""
        return neutralise(self._begun + self._decoder.decode(b"", final=True))
