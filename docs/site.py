"""A hook of mkdocs: links to files outside of `docs` become their names, because a site has only
the pages."""

import os
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(((?![a-z]+:|#)[^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    docs = Path(config["docs_dir"])
    folder = (docs / page.file.src_uri).parent
    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(lambda link: _link(link, folder, docs), each) for each in parts[::2]]
    return "".join(parts)


def _link(link: re.Match[str], folder: Path, docs: Path) -> str:
    target = Path(os.path.normpath(folder / link[2].partition("#")[0]))
    if target.is_relative_to(docs) and target.suffix:
        return link[0]
    name = target.relative_to(docs.parent).as_posix()
    return link[1] if link[1].strip("`") == name else f"{link[1]} (`{name}`)"
