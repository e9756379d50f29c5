"""The picture of a terminal in the README is complete in itself and shows commands that exist."""

import re
from html import unescape
from xml.etree import ElementTree as ET

from tests.support.doc_commands import check_command_line, rota_command_lines
from tests.tidy.tree import ROOT

PICTURE = ROOT / "docs" / "terminal.svg"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_loads_nothing() -> None:
    text = PICTURE.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|url\(|@import|href", text)


def test_the_picture_shows_commands_that_exist() -> None:
    texts = [each.text or "" for each in ET.parse(PICTURE).iter(f"{SVG}text")]
    commands = [unescape(text) for text in texts if text.startswith("rota ")]
    assert len(commands) >= 3
    for command in commands:
        for words in rota_command_lines(command):
            check_command_line(words)
