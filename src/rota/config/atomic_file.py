"""Replace a file atomically."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file so that it holds either the old or the new text, even after a crash."""
    partial = path.with_name(f"{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    partial.rename(path)
