"""The documentation builds as a site without a warning, and the site loads nothing from outside."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")
LOADED_BY_STYLE = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)")


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed")
def test_the_site_builds_and_is_complete_in_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]
    assert len(pages) > 50
    outside = {
        f"{page.name}: {address}"
        for page in pages
        for pattern in (LOADED, LOADED_BY_STYLE)
        for address in pattern.findall(page.read_text())
    }
    assert not outside
