"""The daemon starts without libraries that only some rounds or engines need."""

from __future__ import annotations

import subprocess
import sys


def test_a_start_imports_no_library_that_it_does_not_need() -> None:
    rare = {"aiohttp", "numpy", "scipy"}
    program = f"import sys, rota.server.main; print(*sorted({rare!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
