"""Finds links of the documents that lead nowhere."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:img|a)\s[^>]*(?:src|href)=\"([^\"]+)\"")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```|<!--.*?-->", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def broken_links(page: Path) -> Iterator[str]:
    """The targets in the page that do not exist. Addresses of other sites are not checked."""
    for match in LINK.finditer(CODE.sub("", page.read_text(encoding="utf-8"))):
        target = match[1] or match[2]
        if not re.match(r"[a-z]+:", target) and not _resolves(page, target):
            yield target


def _resolves(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    if not path.exists():
        return False
    return not anchor or (path.suffix == ".md" and anchor in anchors(path))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of the headings that are the same on a code host and on the built site."""
    titles = HEADING.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles]
    return frozenset(_host_anchor(each) for each in texts) & {_site_anchor(each) for each in texts}


def _host_anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _site_anchor(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
