"""Child processes of tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(args: Any, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process, and kill it at the end if it still runs. `with subprocess.Popen(...)` would
    wait for it forever when a test fails."""
    with subprocess.Popen(args, **options) as process:
        try:
            yield process
        finally:
            process.kill()
